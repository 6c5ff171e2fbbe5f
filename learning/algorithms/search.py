"""Learning from the returns of perturbed policies, without gradients: what ARS and ES share.

In an iteration with N directions d_i and the policy's weights w, whole episodes are played with
w + nu d_i and w - nu d_i. A subclass makes a step of their returns. Observations are normalised by
the statistics of all episodes before the iteration, if that is wanted.

Everything is summed up in the order of the episodes' numbers, so equal
seeds give equal weights however many actors there are.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from learning.algorithms.on_policy import OnPolicy
from learning.algorithms.policy_update import (
    NOISE_SQUARED_NORM,
    NOISE_VARIANCE,
    PolicyUpdate,
    StateArrays,
    StateScalars,
)
from learning.algorithms.saved_state import require_same_form, require_scalars
from learning.data.normalisation import ObservationNormaliser
from learning.data.running_moments import RunningMoments
from learning.detectors.detector import PolicySamples
from learning.detectors.gradient_noise import noise_of_norms
from learning.networks.building import PolicyPayload
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import GradientNoise
from shared.hyperparameters.search import SearchHyperparameters
from shared.policy.spec import PolicySpec
from shared.trajectory.columns import Array
from shared.trajectory.directions import direction, shaped_weights, weight_shapes
from shared.trajectory.episode_sums import EpisodeSums
from shared.trajectory.trajectory import Trajectory

H = TypeVar("H", bound=SearchHyperparameters)

LOG_STD = -20.0
"""Of a policy with continuous actions: it always does what is most likely."""
_MOMENTS = "observation_moments."


class Search(OnPolicy, Generic[H]):
    """A search: an `Algorithm`. It computes in NumPy, also where there is a GPU."""

    network = None
    """No detector is defined for it."""
    replay = None

    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: H,
        *,
        seed: int,
        **_: object,
    ) -> None:
        """Begin with an output layer of zeros, behind hidden layers that are random.

        Args:
            environment: What the policy sees and does.
            hyperparameters: The job's full set.
            seed: Of the directions and the hidden layers.

        Raises:
            ValueError: Observations are images.
        """
        if environment.observation.has_images:
            raise ValueError("a search needs observations that are vectors")
        self._rule = hyperparameters
        self._seed = seed
        self._spec = PolicySpec.of(environment, hyperparameters)
        self._weights = _first_weights(self._spec, seed)
        self._normaliser: ObservationNormaliser | None = None
        if hyperparameters.observation_normalisation:
            self._normaliser = ObservationNormaliser(
                moments=RunningMoments.empty(math.prod(environment.observation.shape)),
                bound=hyperparameters.observation_clip,
                mask_size=environment.mask_size,
            )

    def learn(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Take one step with an iteration's episodes, in whatever order.

        A direction of which an episode is missing does not count. Stats are `return_mean`,
        `return_std` and `return_max` of all episodes (the offset not taken off), how many
        `directions` count, the length of the `step`, and `gradient_variance` and
        `gradient_squared_norm` unless there is no noise to estimate.

        Raises:
            ValueError: They are of another algorithm or of several iterations.
            FloatingPointError: The weights would not be finite; the policy is as before.
        """
        parts = [each for each in trajectories if isinstance(each, EpisodeSums)]
        iteration, *others = {each.policy_version for each in trajectories}
        if len(parts) < len(trajectories) or others:
            raise ValueError(f"episodes must be of one iteration, got {[iteration, *others]}")
        sums = _in_order(parts)
        returns = np.full(self._rule.num_episodes, np.nan)
        returns[sums["episode"]] = (
            sums["episode_returns"] - self._rule.reward_offset * sums["episode_lengths"]
        )
        ways = returns.reshape(2, -1)
        counting = self._counting(ways)
        step, noise = self._step(ways[:, counting], counting, iteration)
        self._require_finite(step)
        self._weights = self._weights + step
        if self._normaliser is not None:
            self._normaliser = _including(self._normaliser, sums)
        played = sums["episode_returns"]
        stats = {
            "return_mean": float(played.mean()),
            "return_max": float(played.max()),
            "return_std": float(played.std()),
            "directions": float(len(counting)),
            "step": float(np.linalg.norm(step)),
        }
        if noise is not None:
            stats |= {NOISE_VARIANCE: noise.variance, NOISE_SQUARED_NORM: noise.squared_norm}
        return PolicyUpdate(stats=stats)

    def _counting(self, ways: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the numbers of those that count, of all returns # [2, N]; NaN is missing."""
        return np.flatnonzero(np.isfinite(ways).all(axis=0))

    def _step(
        self, ways: NDArray[np.float64], directions: NDArray[np.intp], iteration: int
    ) -> tuple[NDArray[np.float64], GradientNoise | None]:
        """Return what to add to the weights # [n], and the noise of `_weighed`.

        Args:
            ways: Returns of the directions that count, there and back # [2, K].
            directions: Their numbers # [K].
            iteration: The policy's version.
        """
        raise NotImplementedError

    def _require_finite(self, step: NDArray[np.float64]) -> None:
        """Make sure that weights stay finite with a step, or raise FloatingPointError."""
        if not np.isfinite(self._weights + step).all():
            raise FloatingPointError("the step is not finite; a smaller step size may help")

    def _weighed(
        self, weights: NDArray[np.float64], directions: NDArray[np.intp], iteration: int
    ) -> tuple[NDArray[np.float64], GradientNoise | None]:
        """Return the sum of directions, each times its weight # [K], in their order # [n].

        Also return the noise of this sum. Its samples are the K weighed directions times K, whose
        mean is the sum. There is none with fewer than two, or if all weights are 0.
        """
        total, squares = np.zeros_like(self._weights), 0.0
        for weight, index in zip(weights.tolist(), directions.tolist(), strict=True):
            part = weight * direction(self._seed, iteration, index, total.size)
            total += part
            squares += float(part @ part)
        if squares == 0.0:
            return total, None
        count = len(directions)
        return total, noise_of_norms(count * squares, float(total @ total), count=count)

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        arrays = {name: np.zeros(shape, np.float32) for name, shape in self._spec.shapes.items()}
        arrays |= shaped_weights(self._spec, self._weights)
        metadata = self._spec.metadata()
        if self._spec.head.log_std == "free":
            arrays["log_std"] = np.full(self._spec.head.size, LOG_STD, np.float32)
        if self._normaliser is not None:
            mean, scale = self._normaliser.mean_and_scale()
            arrays |= {"observation_mean": mean, "observation_scale": scale}
            metadata["observation_clip"] = repr(self._normaliser.bound)
        return arrays, metadata

    def samples(self) -> PolicySamples | None:
        """Return None: no detector is defined for it."""
        return None

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything: the weights, and the moments of observations."""
        arrays: StateArrays = {"weights": self._weights.copy()}
        if self._normaliser is not None:
            for name, array in self._normaliser.moments.arrays().items():
                arrays[_MOMENTS + name] = array
        return arrays, {}

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array is missing, unknown or not of its form; nothing has been changed
                then.
        """
        own_arrays, own_scalars = self.state()
        require_same_form(own_arrays, arrays)
        require_scalars(own_scalars, scalars)
        if self._normaliser is not None:
            moments = RunningMoments.from_arrays(arrays, prefix=_MOMENTS)
            self._normaliser = replace(self._normaliser, moments=moments)
        self._weights = np.array(arrays["weights"], np.float64)

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        """Begin with the weights and statistics of another job of the same algorithm.

        Raises:
            ValueError: They do not fit; nothing has been changed then.
        """
        self.load_state(arrays, scalars)


def _first_weights(spec: PolicySpec, seed: int) -> NDArray[np.float64]:
    """Return weights # [n]: 0 in biases and the output layer, else of variance 1 / inputs.

    An output layer of zeros alone would do for linear policies; were all layers zeros, both ways
    of a direction would give the same actions.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    shapes = list(weight_shapes(spec).values())
    parts = []
    for i, shape in enumerate(shapes):
        is_hidden = len(shape) > 1 and i < len(shapes) - 2
        values = rng.standard_normal(shape) / math.sqrt(shape[-1]) if is_hidden else np.zeros(shape)
        parts.append(values.ravel())
    return np.concatenate(parts)


def _in_order(parts: Sequence[EpisodeSums]) -> dict[str, Array]:
    """Return the columns of all parts, by the episodes' number."""
    columns = {
        name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays
    }
    order = np.argsort(columns["episode"])
    return {name: column[order] for name, column in columns.items()}


def _including(normaliser: ObservationNormaliser, sums: dict[str, Array]) -> ObservationNormaliser:
    """Return a normaliser that has seen these episodes, too, in their order."""
    moments = normaliser.moments
    rows = (sums[name] for name in ("episode_lengths", "observation_mean", "observation_m2"))
    for length, mean, m2 in zip(*rows, strict=True):
        moments = moments.joined(int(length), mean, m2)
    return replace(normaliser, moments=moments)
