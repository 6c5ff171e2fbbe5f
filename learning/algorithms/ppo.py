"""Proximal policy optimisation; repeats and resumes are bit-exact.

Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347.
"""

from collections.abc import Sequence
from dataclasses import replace

from learning.algorithms.gradient_learner import GradientLearner
from learning.algorithms.on_policy import OnPolicy
from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.data.batch_building import on_policy_batch
from learning.data.fragments import in_actor_order
from learning.detectors.detector import PolicySamples
from learning.losses.ppo import PpoRule
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.trajectory import Trajectory

KL_COEFFICIENT_MIN = 1e-6
"""Lower bound of the adapted coefficient: from 0 no doubling would raise it."""


class Ppo(OnPolicy, GradientLearner[PpoHyperparameters]):
    """PPO: an `Algorithm`."""

    def _start(self) -> None:
        self._kl_coefficient = self._hyperparameters.kl_coefficient
        self._num_updates = 0
        self._samples: PolicySamples | None = None

    def learn(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in any order.

        Stats are means over the steps taken of: `policy_loss`, `value_loss`, `kl` (nats, old to
        new), `entropy` (nats), `clip_fraction` and `value_clip_fraction` (of samples), `loss`,
        `grad_norm` (before it is limited). Further `explained_variance` of the value targets by
        the values before the update, `behaviour_log_prob_error` (largest difference between an
        actor's log-probability and ours), `kl_coefficient` and `learning_rate` as used,
        `num_minibatches` and `skipped_steps`.

        Raises:
            ValueError: The trajectories do not make a batch.
            FloatingPointError: No gradient step was finite; the policy is unchanged.
        """
        hyperparameters = self._hyperparameters
        ordered = in_actor_order(trajectories)
        following = self._normalisation.after(ordered)
        batch = on_policy_batch(
            ordered,
            self._network,
            discount=hyperparameters.discount,
            gae_lambda=hyperparameters.gae_lambda,
            # Observations as the actors saw them.
            normalisation=replace(self._normalisation, rewards=following.rewards),
            longest_sequence=hyperparameters.sequence_length,
        )
        start = self._update_start()
        rule = self._rule
        stats = self._take_steps(
            batch,
            rule,
            learning_rate=self._decayed(hyperparameters.learning_rate, self._num_updates),
        )
        if "loss" not in stats:
            raise FloatingPointError(
                f"loss or gradient was not finite in all {stats['skipped_steps']:.0f} steps of the "
                "update; a smaller learning_rate may help"
            )
        gap = (batch.log_prob - batch.behaviour_log_prob).abs().max().nan_to_num()
        stats["behaviour_log_prob_error"] = float(gap)
        stats["kl_coefficient"] = self._kl_coefficient
        self._kl_coefficient = adapted_kl_coefficient(
            self._kl_coefficient,
            stats["kl"],
            target=hyperparameters.kl_target,
            maximum=hyperparameters.kl_coefficient_max,
        )
        self._normalisation = following
        self._num_updates += 1
        if not hyperparameters.state_size:  # detectors take samples one by one
            self._samples = PolicySamples(batch=batch, rule=rule, start=start)
        return PolicyUpdate(stats=stats)

    def samples(self) -> PolicySamples | None:
        """Return the last update's; None of a recurrent policy, or before the first update."""
        return self._samples

    @property
    def _rule(self) -> PpoRule:
        """The next update's."""
        return PpoRule(
            hyperparameters=self._in_round(self._num_updates), kl_coefficient=self._kl_coefficient
        )

    def _scalars(self) -> StateScalars:
        scalars = super()._scalars() | {"kl_coefficient": self._kl_coefficient}
        decays = (self._hyperparameters.learning_rate_decay, self._hyperparameters.entropy_decay)
        if decays != ("none", "none"):
            scalars["num_updates"] = self._num_updates
        return scalars

    def _load_scalars(self, scalars: StateScalars) -> None:
        super()._load_scalars(scalars)
        self._kl_coefficient = float(scalars["kl_coefficient"])
        self._num_updates = int(scalars.get("num_updates", 0))

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned; there are no samples until an update."""
        super().load_state(arrays, scalars)
        self._samples = None


def adapted_kl_coefficient(
    coefficient: float, kl: float, *, target: float, maximum: float
) -> float:
    """Return the next update's KL coefficient, steering the mean KL towards `target`.

    RLlib's rule: x1.5 above twice the target, x0.5 below half of it. RLlib has no bounds; ours are
    `maximum` and KL_COEFFICIENT_MIN. A coefficient of 0 means that the term is unused; it stays 0.
    """
    if coefficient == 0.0:
        return 0.0
    if kl > 2.0 * target:
        return min(1.5 * coefficient, max(coefficient, maximum))
    if kl < 0.5 * target:
        return max(0.5 * coefficient, min(coefficient, KL_COEFFICIENT_MIN))
    return coefficient
