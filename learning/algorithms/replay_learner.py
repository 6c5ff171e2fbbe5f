"""Off-policy learning from single steps, for simulators with expensive steps.

SAC and CrossQ share it; each has its own networks and gradient steps.

The learner *owes* `updates_per_step` gradient steps for every environment step after the first
`learning_starts`, whatever the number of actors. Before the first one actors draw their actions
uniformly.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.algorithms.saved_state import generator_from, require_same_form, require_scalars
from learning.data.transitions import Replay, RowColumns, transitions
from learning.detectors.detector import PolicySamples
from learning.networks.building import PolicyPayload
from learning.updates.replay_steps import ReplaySteps
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.replay import ReplayHyperparameters
from shared.policy.spec import PolicySpec
from shared.trajectory.trajectory import Trajectory

CHUNK = 64
"""Most gradient steps of one `update`: between updates the learner checks whether to stop."""


class ReplayLearner:
    """Learns from a replay: an `Algorithm`. It computes on the CPU, also where there is a GPU."""

    steps: ClassVar[Callable[..., ReplaySteps]]
    """Makes the networks and their gradient steps, given the columns, the full set and a `seed`."""
    network = None
    """No detector is defined for it."""

    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: ReplayHyperparameters,
        *,
        seed: int,
        **_: object,
    ) -> None:
        """Initialise networks, optimisers and an empty replay.

        Args:
            environment: Its observations and actions.
            hyperparameters: The job's full set.
            seed: Of all random numbers.

        Raises:
            ValueError: Actions are discrete, or observations are images.
        """
        if environment.observation.has_images or environment.action.kind != "continuous":
            name = type(self).__name__.lower()
            raise ValueError(f"{name} needs continuous actions, and observations that are vectors")
        network_seed, step_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        columns = RowColumns(math.prod(environment.observation.shape), len(environment.action.low))
        self._rule = hyperparameters
        self._spec = PolicySpec.of(environment, hyperparameters)
        self._steps = type(self).steps(columns, hyperparameters, seed=int(network_seed))
        self._generator = torch.Generator().manual_seed(int(step_seed))
        self.replay = Replay(
            width=columns.width, capacity=hyperparameters.kept_steps(columns.width)
        )
        self._updates = 0
        self._policy_version = 0
        self._lags: list[int] = []

    @property
    def _owed(self) -> int:
        """Gradient steps still owed for the steps in the replay."""
        beyond = max(0, self.replay.added - self._rule.learning_starts)
        return int(beyond * self._rule.updates_per_step) - self._updates

    @property
    def ready(self) -> bool:
        """Whether gradient steps are owed."""
        return self._owed > 0

    @property
    def has_fresh(self) -> bool:
        """Whether gradient steps are owed: all owed steps are for fresh data."""
        return self.ready

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Add trajectories, in this order."""
        if not self.ready:
            self._lags = []  # earlier steps owe no further gradient steps
        for trajectory in trajectories:
            self.replay.add(transitions(trajectory))
            self._lags.append(self._policy_version - trajectory.policy_version)

    def flush(self) -> None:
        """Do nothing: no step waits for others."""

    def advance(self, policy_version: int) -> None:
        """Set the present policy's version to `policy_version`."""
        self._policy_version = policy_version

    def update(self) -> PolicyUpdate:
        """Take all owed gradient steps, but at most CHUNK.

        Stats are means of the algorithm's own over the steps that have them. Further
        `gradient_steps`, `skipped_steps`, `policy_lag_mean` and `policy_lag_max` of the
        trajectories added since the last update, and `fresh`.

        Raises:
            RuntimeError: Not `ready`.
            FloatingPointError: No step was finite; the policy is unchanged.
        """
        if not self.ready:
            raise RuntimeError("no gradient step is owed")
        steps = min(self._owed, CHUNK)
        size, action_size = self._rule.minibatch_size, self._steps.columns.action_size
        choices = torch.rand((steps, size), dtype=torch.float64, generator=self._generator)
        noises = torch.randn((steps, 2, size, action_size), generator=self._generator)
        rows = torch.from_numpy(self.replay.drawn(choices.numpy()))
        taken = [self._steps.take(*each) for each in zip(rows, noises, strict=True)]
        self._updates += steps
        finite = [stats for stats in taken if stats is not None]
        if not finite:
            raise FloatingPointError(
                f"loss or gradient was not finite in all of {steps} gradient steps; a smaller "
                "learning_rate may help"
            )
        lags, self._lags = self._lags or [0], []
        stats = {name: _mean_of(name, finite) for name in ChainMap(*finite)}
        return PolicyUpdate(
            stats=stats
            | {
                "gradient_steps": float(steps),
                "skipped_steps": float(steps - len(finite)),
                "policy_lag_mean": sum(lags) / len(lags),
                "policy_lag_max": float(max(lags)),
                "fresh": 1.0,
            }
        )

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it: it changes only with an update."""
        arrays = {}
        for i, layer in enumerate(self._steps.policy.plain_layers()):
            arrays[f"policy.{i}.weight"] = layer.weight.detach().numpy().copy()
            arrays[f"policy.{i}.bias"] = layer.bias.detach().numpy().copy()
        # The number of steps in the replay does not decide: it changes without a new version.
        warming = self._updates == 0 and self._rule.learning_starts > 0
        sampling = {"sampling": "uniform"} if warming else {}
        mapping = {"action_mapping": self._rule.action_mapping}
        return arrays, self._spec.metadata() | mapping | sampling

    def samples(self) -> PolicySamples | None:
        """Return None: no detector is defined for it."""
        return None

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything but the replay: arrays, and JSON scalars."""
        arrays: StateArrays = {"generator": self._generator.get_state().numpy().copy()}
        for name, flat in (self._steps.flats | self._steps.moments).items():
            arrays[name] = flat.detach().numpy().copy()
        return arrays, {
            **self._steps.adam_steps,
            "updates": self._updates,
            "policy_version": self._policy_version,
        }

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned; the replay is restored separately.

        Raises:
            ValueError: An array or scalar is missing or not of its form, or an array is unknown;
                nothing has been changed then.
        """
        own_arrays, own_scalars = self.state()
        require_same_form(own_arrays, arrays)
        require_scalars(own_scalars, scalars)
        self._generator = generator_from(arrays["generator"])
        self._load(self._steps.flats | self._steps.moments, arrays)
        self._steps.load_adam_steps(scalars)
        self._updates = int(scalars["updates"])
        self._policy_version = int(scalars["policy_version"])

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        """Begin with everything learned by another job of the algorithm.

        Raises:
            ValueError: They do not fit; nothing has been changed then.
        """
        flats = self._steps.flats | (self._steps.moments if optimiser else {})
        own = {name: flat.detach().numpy() for name, flat in flats.items()}
        require_same_form(own, {name: arrays[name] for name in own.keys() & arrays.keys()})
        if optimiser:
            require_scalars(self._steps.adam_steps, scalars)
            self._steps.load_adam_steps(scalars)
        self._load(flats, arrays)

    @staticmethod
    def _load(flats: Mapping[str, Tensor], arrays: StateArrays) -> None:
        for name, flat in flats.items():
            flat.copy_(torch.from_numpy(np.array(arrays[name])))


def _mean_of(name: str, steps: Sequence[Mapping[str, float]]) -> float:
    """Return a stat's mean over the steps that have it: not every step updates the policy."""
    found = [stats[name] for stats in steps if name in stats]
    return sum(found) / len(found)
