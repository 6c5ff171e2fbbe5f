"""IMPALA: the policy gradient on data of older policies, corrected by V-trace.

Espeholt et al., "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
architectures", ICML 2018. Every batch is used once, in order of arrival. A batch may be cut into
minibatches, with a step for each; V-trace is computed once, before the first.
"""

import math
from collections.abc import Mapping

from torch import Tensor

from learning.algorithms.off_policy import OffPolicyLearner
from learning.algorithms.policy_update import StateScalars
from learning.data.batch_building import off_policy_batch
from learning.data.minibatch import num_minibatches
from learning.data.normalisation import Normalisation
from learning.losses.impala import ImpalaRule
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.trajectory.columns import Columns, Experience

STEP_SCALE_MAX = 32.0
"""Largest scale of steps, up and down: without this bound it could grow or shrink forever."""
_STEP_FACTOR = 1.5


class Impala(OffPolicyLearner[ImpalaHyperparameters]):
    """IMPALA, with the scale of its steps if it is adaptive."""

    def _start(self) -> None:
        super()._start()
        self._step_scale = 1.0
        self._last_minibatches = 0

    def batch(self, fragments: Experience, normalisation: Normalisation) -> Columns[Tensor]:
        """Return the samples of some fragments, with V-trace of the present policy."""
        return off_policy_batch(
            fragments,
            policy=self._network,
            critic=self._network,
            rule=self._hyperparameters,
            normalisation=normalisation,
        )

    @property
    def rule(self) -> ImpalaRule:
        """The loss."""
        return ImpalaRule(hyperparameters=self._in_round(self._newest_round))

    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:
        """Adapt the scale of the steps, if adaptive; return the used one as `step_scale`."""
        target, used = self._hyperparameters.kl_target, self._step_scale
        if not target:
            return {}
        # The divergence of skipped minibatches is unknown.
        kl = math.inf if stats["skipped_steps"] else stats["kl"]
        adapted = adapted_step_scale(used, kl, target=target)
        # The mean is over the minibatches, each before its own step; a mean over few is too noisy.
        full = num_minibatches(
            self._hyperparameters.train_batch_size, self._hyperparameters.minibatch_size
        )
        # If rounds are smaller than a full batch, the previous batch is the measure.
        taken, before = int(stats["num_minibatches"]), self._last_minibatches
        self._last_minibatches = taken
        if adapted < used or taken >= max(2, min(full, before)):
            self._step_scale = adapted
        return {"step_scale": used}

    @property
    def step_scale(self) -> float:
        """Factor of the step size; 1 if it is not adaptive."""
        return self._step_scale

    def _scalars(self) -> StateScalars:
        if not self._hyperparameters.kl_target:
            return super()._scalars()
        return super()._scalars() | {
            "step_scale": self._step_scale,
            "last_minibatches": self._last_minibatches,
        }

    def _load_scalars(self, scalars: StateScalars) -> None:
        super()._load_scalars(scalars)
        if self._hyperparameters.kl_target:
            self._step_scale = float(scalars["step_scale"])
            self._last_minibatches = int(scalars["last_minibatches"])


def adapted_step_scale(scale: float, kl: float, *, target: float) -> float:
    """Return the scale of the next update's steps, given this update's KL divergence.

    A factor of 1.5 down beyond twice the target, and up below half of it, as Rudin et al. adapt
    PPO's: "Learning to walk in minutes using massively parallel deep reinforcement learning",
    CoRL 2021.

    Args:
        scale: Of this update's steps.
        kl: Mean KL divergence from the policy before it, along the update; non-finite values count
            as too far.
        target: Its target.
    """
    if not kl <= 2 * target:
        return max(scale / _STEP_FACTOR, 1 / STEP_SCALE_MAX)
    if kl < target / 2:
        return min(scale * _STEP_FACTOR, STEP_SCALE_MAX)
    return scale
