"""IMPACT: proximal steps around a slowly following target policy, on data of older policies.

Luo et al., "IMPACT: Importance weighted asynchronous architectures with clipped target networks",
ICLR 2020, algorithm 1. Three policies: the one that acted, the target (a copy of the learner's that
is renewed every few batches), and the learner's. V-trace's targets and advantages are the target
policy's; values are the learner's, as in RLlib.
"""

from collections.abc import Mapping
from copy import deepcopy

from torch import Tensor

from learning.algorithms.off_policy import OffPolicyLearner
from learning.algorithms.policy_update import StateScalars
from learning.algorithms.ppo import adapted_kl_coefficient
from learning.data.batch_building import off_policy_batch
from learning.data.normalisation import Normalisation
from learning.losses.impact import ImpactRule, reference_log_prob
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.trajectory.columns import Columns, Experience


class Impact(OffPolicyLearner[ImpactHyperparameters]):
    """IMPACT, with the target policy and the KL coefficient that its loss depends on."""

    def _start(self) -> None:
        super()._start()
        self._target = deepcopy(self._network)
        self._kl_coefficient = self._hyperparameters.kl_coefficient
        self._batches_since_target = 0

    def batch(self, fragments: Experience, normalisation: Normalisation) -> Columns[Tensor]:
        """Return the samples of some fragments; `log_prob` is the ratio's reference."""
        batch = off_policy_batch(
            fragments,
            policy=self._target,
            critic=self._network,
            rule=self._hyperparameters,
            normalisation=normalisation,
        )
        reference = reference_log_prob(
            batch.log_prob,
            batch.behaviour_log_prob,
            importance_clip=self._hyperparameters.importance_clip,
        )
        return batch.replaced(log_prob=reference)

    @property
    def rule(self) -> ImpactRule:
        """The loss, with the present KL coefficient."""
        return ImpactRule(
            hyperparameters=self._in_round(self._newest_round), kl_coefficient=self._kl_coefficient
        )

    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:
        """Renew the target policy when it is due, and then adapt the KL coefficient, as RLlib does.

        Returns:
            `kl_coefficient` as used, and `target_updates`, 1 or 0.
        """
        used = self._kl_coefficient
        self._batches_since_target += 1
        due = self._batches_since_target >= self._hyperparameters.target_update_batches
        if due:
            self._target.flat.copy_(self._network.flat)
            self._batches_since_target = 0
            if "kl" in stats:
                self._kl_coefficient = adapted_kl_coefficient(
                    used,
                    stats["kl"],
                    target=self._hyperparameters.kl_target,
                    maximum=self._hyperparameters.kl_coefficient_max,
                )
        return {"kl_coefficient": used, "target_updates": float(due)}

    def _begin_with(self, normalisation: Normalisation) -> None:
        super()._begin_with(normalisation)
        self._target.flat.copy_(self._network.flat)

    def _flats(self) -> dict[str, Tensor]:
        return super()._flats() | {"target": self._target.flat}

    def _scalars(self) -> StateScalars:
        return super()._scalars() | {
            "kl_coefficient": self._kl_coefficient,
            "batches_since_target": self._batches_since_target,
        }

    def _load_scalars(self, scalars: StateScalars) -> None:
        super()._load_scalars(scalars)
        self._kl_coefficient = float(scalars["kl_coefficient"])
        self._batches_since_target = int(scalars["batches_since_target"])
