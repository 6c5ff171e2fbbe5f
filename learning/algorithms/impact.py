"""IMPACT: proximal steps around a slowly following target policy, on data of older policies.

Luo et al., "IMPACT: Importance weighted asynchronous architectures with clipped target networks",
ICLR 2020, algorithm 1. Three policies: the one that acted, the target (a copy of the learner's that
is renewed every few batches), and the learner's. V-trace's targets and advantages are the target
policy's; values are the learner's, as in RLlib.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.off_policy import OffPolicyLearner
from learning.algorithms.policy_update import StateScalars
from learning.algorithms.ppo import adapted_kl_coefficient
from learning.cpu.second_process import SecondProcess
from learning.data.batch import TrainingBatch
from learning.data.batch_building import off_policy_batch
from learning.data.fragments import Fragments
from learning.data.normalisation import Normalisation
from learning.data.replay_buffer import ReplayBuffer
from learning.losses.impact import ImpactRule, reference_log_prob
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import ImpactHyperparameters


class ImpactObjective:
    """IMPACT's loss, with the target policy and the KL coefficient it depends on."""

    def __init__(
        self,
        network: ActorCritic,
        target: ActorCritic,
        hyperparameters: ImpactHyperparameters,
    ) -> None:
        """Start with the target equal to the network.

        Args:
            network: The learner's.
            target: Of the same form; overwritten.
            hyperparameters: The job's full set.
        """
        self._network = network
        self._target = target
        self._hyperparameters = hyperparameters
        self._kl_coefficient = hyperparameters.kl_coefficient
        self._batches_since_target = 0
        target.flat.copy_(network.flat)

    def batch(self, fragments: Fragments, normalisation: Normalisation) -> TrainingBatch:
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
        return replace(batch, log_prob=reference)

    @property
    def rule(self) -> LossRule:
        """The loss, with the present KL coefficient."""
        return ImpactRule(
            hyperparameters=self._hyperparameters, kl_coefficient=self._kl_coefficient
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

    @property
    def step_scale(self) -> float:
        """Always 1: the loss itself bounds the steps."""
        return 1.0

    @property
    def flats(self) -> dict[str, Tensor]:
        """The target network's parameters: # [P]."""
        return {"target": self._target.flat}

    def scalars(self) -> StateScalars:
        """Return the rest of its state."""
        return {
            "kl_coefficient": self._kl_coefficient,
            "batches_since_target": self._batches_since_target,
        }

    def load_scalars(self, scalars: StateScalars) -> None:
        """Continue from what `scalars` returned, among others."""
        self._kl_coefficient = float(scalars["kl_coefficient"])
        self._batches_since_target = int(scalars["batches_since_target"])


def build_impact(
    environment: EnvironmentSpec,
    hyperparameters: ImpactHyperparameters,
    *,
    seed: int,
    max_rounds: int = 1,
    device: torch.device | str = "cpu",
    second_process: SecondProcess | None = None,
) -> OffPolicyLearner:
    """Return a new learner; everything random follows from `seed`.

    Args:
        environment: What the network sees and does.
        hyperparameters: The job's full set.
        seed: Of the weights and the shuffling.
        max_rounds: Rounds until a decaying step size would be 0.
        device: Where to compute.
        second_process: May compute on a second core; changes no bit.
    """
    network_seed, shuffle_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    network, target = (
        build_network(environment, hyperparameters, seed=int(network_seed), device=device)
        for _ in range(2)
    )
    return OffPolicyLearner(
        network,
        ImpactObjective(network, target, hyperparameters),
        hyperparameters,
        buffer=ReplayBuffer(
            batch_size=hyperparameters.train_batch_size,
            num_batches=hyperparameters.buffer_batches,
            max_uses=hyperparameters.buffer_uses,
        ),
        normalisation=Normalisation.initial(environment, hyperparameters),
        num_epochs=hyperparameters.num_epochs,
        max_rounds=max_rounds,
        shuffle_seed=int(shuffle_seed),
        second_process=second_process,
    )
