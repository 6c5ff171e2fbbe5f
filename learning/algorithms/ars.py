"""Augmented random search.

Mania, Guy and Recht, "Simple random search provides a competitive approach to reinforcement
learning", arXiv 1803.07055, algorithm 2. In an iteration, with N directions d_i, the policy's
weights w and the step size a:

    r+_i, r-_i   returns of a whole episode each with w + nu d_i and w - nu d_i
    w <- w + a / (b s) * sum of (r+_i - r-_i) d_i over the b directions with the largest
         max(r+_i, r-_i), where s is the standard deviation of these 2b returns

V2 normalises observations; V1 does not. The policy is linear unless it has hidden layers.
"""

import numpy as np
from numpy.typing import NDArray

from learning.algorithms.search import Search
from shared.contracts.rounds import GradientNoise
from shared.hyperparameters.ars import ArsHyperparameters


class Ars(Search[ArsHyperparameters]):
    """ARS; where all returns are equal, nothing moves."""

    def _counting(self, ways: NDArray[np.float64]) -> NDArray[np.intp]:
        best = np.nan_to_num(ways.max(axis=0), nan=-np.inf)
        counting = np.argsort(-best, kind="stable")[: self._rule.num_counting]
        return np.sort(counting[np.isfinite(best[counting])])

    def _step(
        self, ways: NDArray[np.float64], directions: NDArray[np.intp], iteration: int
    ) -> tuple[NDArray[np.float64], GradientNoise | None]:
        deviation = float(ways.std()) if ways.size else 0.0
        if deviation == 0.0:
            return np.zeros_like(self._weights), None
        size = self._rule.step_size / (len(directions) * deviation)
        return self._weighed(size * (ways[0] - ways[1]), directions, iteration)
