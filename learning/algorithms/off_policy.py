"""The common part of IMPACT and IMPALA: batches from a replay buffer.

An update draws one batch, evaluates it with the present networks, and takes `num_epochs` passes
over its samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from learning.algorithms.gradient_learner import GradientLearner
from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.data.batch import joined, weighted
from learning.data.normalisation import PRESENT, Normalisation
from learning.data.replay_buffer import ReplayBuffer
from learning.detectors.detector import PolicySamples
from learning.losses.loss_terms import LossRule
from learning.returns.gae import normalised
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.trajectory.columns import Columns, Experience
from shared.trajectory.trajectory import Trajectory

H = TypeVar("H", bound=ImpactHyperparameters | ImpalaHyperparameters)

BARREN_BATCHES_MAX = 10
"""Number of consecutive batches without a finite gradient step after which the job fails. A batch
may be a single step, so one bad batch must not end a job."""

_BUFFER = "buffer."
_FOLLOWING = "following."


class OffPolicyLearner(GradientLearner[H], ABC):
    """Learns from replayed batches: an `Algorithm`.

    A subclass defines the samples of a batch, `batch`, and its loss, `rule`.
    """

    def _start(self) -> None:
        self._buffer = ReplayBuffer(
            batch_size=self._hyperparameters.train_batch_size,
            num_batches=self._hyperparameters.buffer_batches,
            max_uses=self._hyperparameters.buffer_uses,
        )
        self._following = self._normalisation
        self._policy_version = 0
        self._newest_round = 0
        self._barren_batches = 0
        self._fresh_batches: list[Columns[Tensor]] = []
        self._shown = False

    @abstractmethod
    def batch(self, fragments: Experience, normalisation: Normalisation) -> Columns[Tensor]:
        """Return the samples of some fragments with their advantages and value targets."""

    @property
    @abstractmethod
    def rule(self) -> LossRule:
        """The present loss for a batch."""

    @abstractmethod
    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:
        """Note the end of a batch's update; return stats to add to its means `stats`."""

    @property
    def step_scale(self) -> float:
        """Present factor of the step size."""
        return 1.0

    @property
    def ready(self) -> bool:
        """Whether `update` has a batch, fresh or to replay."""
        return self._buffer.ready

    @property
    def has_fresh(self) -> bool:
        """Whether a fresh batch is waiting; `update` takes fresh batches first."""
        return self._buffer.has_fresh

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Add trajectories, in this order; every full batch becomes fresh."""
        if trajectories:
            self._following = self._following.after(trajectories)
        self._buffer.add(trajectories)
        self._newest_round = max([self._newest_round, *(t.round for t in trajectories)])

    def flush(self) -> None:
        """Make a batch of the waiting trajectories, however few."""
        self._buffer.flush()

    def advance(self, policy_version: int) -> None:
        """Note that the present policy is published as `policy_version`."""
        self._policy_version = policy_version
        self._normalisation = self._following

    def update(self) -> PolicyUpdate:
        """Improve the policy with one batch.

        Stats are means over the steps taken of the loss's terms and `grad_norm`; further
        `explained_variance` of the value targets by the values before the update,
        `policy_lag_mean` and `policy_lag_max` in versions, `fresh`, `learning_rate`,
        `num_minibatches`, `skipped_steps` and the algorithm's own stats.

        Raises:
            RuntimeError: Not `ready`.
            FloatingPointError: None of the last BARREN_BATCHES_MAX batches had a finite gradient
                step; the policy is as it was before them.
        """
        draw = self._buffer.draw()
        # Observations as the present version sees them; rewards may use the newest scale.
        batch = self.batch(
            draw.fragments, replace(self._normalisation, rewards=self._following.rewards)
        )
        if self._hyperparameters.advantage_normalisation != "none":
            # Minibatches are normalised again; detectors see these, weighted.
            batch = batch.replaced(advantage=normalised(batch.advantage))
        scaled = self._hyperparameters.learning_rate * self.step_scale
        stats = self._take_steps(
            batch,
            self.rule,
            learning_rate=self._decayed(scaled, self._newest_round),
        )
        self._barren_batches = 0 if "loss" in stats else self._barren_batches + 1
        if self._barren_batches >= BARREN_BATCHES_MAX:
            raise FloatingPointError(
                f"loss or gradient was not finite in any step of the last {BARREN_BATCHES_MAX} "
                "batches; a smaller learning_rate may help"
            )
        lag = self._policy_version - draw.fragments.policy_version
        stats |= {
            "policy_lag_mean": float(lag.mean()),
            "policy_lag_max": float(lag.max()),
            "fresh": float(draw.uses == 1),
        }
        stats |= self.after_batch(stats)
        if draw.uses == 1 and not self._hyperparameters.state_size:
            self._remember(batch)
        return PolicyUpdate(stats=stats)

    def _remember(self, batch: Columns[Tensor]) -> None:
        if self._shown:
            self._fresh_batches, self._shown = [], False
        self._fresh_batches.append(weighted(batch))

    def samples(self) -> PolicySamples | None:
        """Return the round's samples; None of a recurrent policy, or before the first update.

        These are the batches used for the first time since the last call, with the advantages they
        had then; without any, those of the last call.
        """
        if not self._fresh_batches:
            return None
        self._shown = True
        return PolicySamples(batch=joined(self._fresh_batches), rule=self.rule)

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        arrays, scalars = super().state()
        return arrays | _prefixed(_BUFFER, self._buffer.state()), scalars

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array or scalar is missing or not of its form, or an array is unknown;
                nothing has been changed then.
        """
        buffer = self._buffer.restored(_within(_BUFFER, arrays))
        fixed = {name: a for name, a in arrays.items() if not name.startswith(_BUFFER)}
        super().load_state(fixed, scalars)
        self._buffer = buffer
        self._fresh_batches = []

    def _begin_with(self, normalisation: Normalisation) -> None:
        super()._begin_with(normalisation)
        self._following = normalisation

    def _statistics(self) -> StateArrays:
        present, following = self._normalisation.arrays(), self._following.arrays()
        return _prefixed(PRESENT, present) | _prefixed(_FOLLOWING, following)

    def _load_statistics(self, arrays: StateArrays) -> None:
        self._normalisation, self._following = (
            self._normalisation.restored(_within(prefix, arrays))
            for prefix in (PRESENT, _FOLLOWING)
        )

    def _scalars(self) -> StateScalars:
        return super()._scalars() | {
            "policy_version": self._policy_version,
            "newest_round": self._newest_round,
            "barren_batches": self._barren_batches,
        }

    def _load_scalars(self, scalars: StateScalars) -> None:
        super()._load_scalars(scalars)
        self._policy_version = int(scalars["policy_version"])
        self._newest_round = int(scalars["newest_round"])
        self._barren_batches = int(scalars["barren_batches"])


def _prefixed(prefix: str, arrays: StateArrays) -> StateArrays:
    return {prefix + name: array for name, array in arrays.items()}


def _within(prefix: str, arrays: StateArrays) -> StateArrays:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
