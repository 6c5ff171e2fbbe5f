"""The simplest off-policy algorithm: its policy is the mean of the actor indices it has seen."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.detectors.detector import PolicySamples
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload
from shared.contracts.rounds import Curvature, GradientNoise
from shared.trajectory.trajectory import Trajectory

Identities = NDArray[np.int64]  # [n, 3]: round, actor index, policy version


class Averaging:
    """Makes a batch of every `batch_size` trajectories and uses each batch `max_uses` times."""

    replay = None

    def __init__(self, *, batch_size: int = 3, max_uses: int = 1) -> None:
        self._batch_size = batch_size
        self._max_uses = max_uses
        self.version = 0
        self.used: list[tuple[int, int, int]] = []
        """Identities of the trajectories of all fresh batches, in the order of their use."""
        self.waiting: list[tuple[int, int, int]] = []
        self._fresh: list[list[tuple[int, int, int]]] = []
        self._replayed: list[tuple[int, int, int]] = []
        self._uses_left = 0

    def policy_payload(self) -> PolicyPayload:
        indices = [index for _, index, _ in self.used] or [0]
        return {"mean": np.array([np.mean(indices)], np.float32)}, {}

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            identity = trajectory.round, trajectory.actor_index, trajectory.policy_version
            self.waiting.append(identity)
            if len(self.waiting) == self._batch_size:
                self.flush()

    def flush(self) -> None:
        if self.waiting:
            self._fresh.append(self.waiting)
            self.waiting = []

    @property
    def ready(self) -> bool:
        return self.has_fresh or self._uses_left > 0

    @property
    def has_fresh(self) -> bool:
        return bool(self._fresh)

    def update(self) -> PolicyUpdate:
        fresh = self.has_fresh
        if fresh:
            self._replayed = self._fresh.pop(0)
            self._uses_left = self._max_uses
            self.used += self._replayed
        elif not self.ready:
            raise RuntimeError("nothing to update with")
        self._uses_left -= 1
        lags = [self.version - version for _, _, version in self._replayed]
        return PolicyUpdate(
            stats={
                "policy_lag_mean": float(np.mean(lags)),
                "policy_lag_max": float(max(lags)),
                "fresh": float(fresh),
            }
        )

    def advance(self, policy_version: int) -> None:
        self.version = policy_version

    @property
    def network(self) -> ActorCritic:
        return cast("ActorCritic", self)  # which nobody but `VersionDetector` looks at

    start = None
    """Nothing of before an update."""

    def samples(self) -> PolicySamples | None:
        return cast("PolicySamples", self) if self.used else None

    def state(self) -> tuple[StateArrays, StateScalars]:
        fresh = [identity for batch in self._fresh for identity in batch]
        arrays: StateArrays = {
            "used": _rows(self.used),
            "waiting": _rows(self.waiting),
            "fresh": _rows(fresh),
            "fresh_sizes": np.array([len(batch) for batch in self._fresh], np.int64),
            "replayed": _rows(self._replayed),
        }
        return arrays, {"uses_left": self._uses_left}

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        self.used, self.waiting = _identities(arrays["used"]), _identities(arrays["waiting"])
        fresh = _identities(arrays["fresh"])
        self._fresh = []
        for size in arrays["fresh_sizes"].tolist():
            self._fresh.append(fresh[:size])
            fresh = fresh[size:]
        self._replayed = _identities(arrays["replayed"])
        self._uses_left = int(scalars["uses_left"])

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        raise NotImplementedError


def _rows(identities: list[tuple[int, int, int]]) -> Identities:
    return np.array(identities, np.int64).reshape(-1, 3)


def _identities(rows: NDArray[np.generic]) -> list[tuple[int, int, int]]:
    return [(int(r), int(i), int(v)) for r, i, v in rows.tolist()]


class VersionDetector:
    """Measures which version an `Averaging` is."""

    def measure(self, policy: ActorCritic, samples: PolicySamples) -> Curvature:  # noqa: ARG002
        version = cast("Averaging", policy).version
        return Curvature(
            lambda_max=1.0,
            lambda_min=-1.0 - version,
            residual=0.0,
            matvecs=1,
            num_samples=1,
            gradient_noise=GradientNoise(squared_norm=1.0, variance=2.0 + version),
            elapsed_s=0.0,
        )
