"""Evolution strategies with ranks and Adam.

Salimans, Ho, Chen, Sidor and Sutskever, "Evolution strategies as a scalable alternative to
reinforcement learning", arXiv 1703.03864, as its authors published it. In an iteration, with
directions d_i and the policy's weights w:

    u+_i, u-_i   centred ranks, from -1/2 to 1/2, of the returns of a whole episode each with
                 w + nu d_i and w - nu d_i, among all of the iteration
    g = 1 / (2N) * sum of (u+_i - u-_i) d_i
    w <- w + Adam(g - weight_decay * w)

Equal returns have equal ranks: the mean of those that they would have. The published code ranks
them by chance.
"""

import math

import numpy as np
from numpy.typing import NDArray

from learning.algorithms.policy_update import StateArrays, StateScalars
from learning.algorithms.search import Search
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import GradientNoise
from shared.hyperparameters.es import EsHyperparameters

_ADAM = ("adam_mean", "adam_square")


class Es(Search[EsHyperparameters]):
    """ES."""

    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: EsHyperparameters,
        *,
        seed: int,
        **_: object,
    ) -> None:
        """Begin as `Search` does, with Adam's moments at 0."""
        super().__init__(environment, hyperparameters, seed=seed)
        self._mean, self._square = np.zeros_like(self._weights), np.zeros_like(self._weights)
        self._num_steps = 0

    def _step(
        self, ways: NDArray[np.float64], directions: NDArray[np.intp], iteration: int
    ) -> tuple[NDArray[np.float64], GradientNoise | None]:
        rule, ranks, noise = self._rule, centred_ranks(ways), None
        gradient = -rule.weight_decay * self._weights
        if directions.size:
            weights = (ranks[0] - ranks[1]) / ranks.size
            found, noise = self._weighed(weights, directions, iteration)
            gradient += found
        num_steps = self._num_steps + 1
        mean = rule.adam_beta1 * self._mean + (1 - rule.adam_beta1) * gradient
        square = rule.adam_beta2 * self._square + (1 - rule.adam_beta2) * gradient**2
        unbiased = math.sqrt(1 - rule.adam_beta2**num_steps)
        size = rule.learning_rate * unbiased / (1 - rule.adam_beta1**num_steps)
        step = size * mean / (np.sqrt(square) + rule.adam_epsilon)
        self._require_finite(step)
        self._mean, self._square, self._num_steps = mean, square, num_steps
        return step, noise

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything: also Adam's moments and its number of steps."""
        arrays, scalars = super().state()
        arrays |= {"adam_mean": self._mean.copy(), "adam_square": self._square.copy()}
        return arrays, {**scalars, "adam_steps": self._num_steps}

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned; raises as `Search` does."""
        super().load_state(arrays, scalars)
        self._mean, self._square = (np.array(arrays[name], np.float64) for name in _ADAM)
        self._num_steps = int(scalars["adam_steps"])

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        """Begin with another job's weights and statistics, and Adam's moments if wanted."""
        own = (self._mean, self._square, self._num_steps)
        self.load_state(arrays, scalars)
        if not optimiser:
            self._mean, self._square, self._num_steps = own


def centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each value's rank among all, from -1/2 to 1/2; equal values have their mean rank."""
    if values.size < 2:
        return np.zeros_like(values)
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts + 1) / 2
    return ranks[groups].reshape(values.shape) / (values.size - 1) - 0.5
