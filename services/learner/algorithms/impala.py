"""IMPALA: the policy gradient on data of older policies, corrected by V-trace.

Espeholt et al., "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
architectures", ICML 2018. Every batch is used once, in the order it came. A batch may be cut into
minibatches, a step each; V-trace is computed once, before the first.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.algorithms.fragments import Fragments
from services.learner.algorithms.impala_loss import ImpalaRule
from services.learner.algorithms.loss_terms import LossRule
from services.learner.algorithms.off_policy import OffPolicyLearner
from services.learner.algorithms.off_policy_batch import build_off_policy_batch
from services.learner.algorithms.policy_update import StateScalars
from services.learner.algorithms.replay_buffer import ReplayBuffer
from services.learner.batch import TrainingBatch
from services.learner.networks import build_network
from services.learner.normalisation import Normalisation
from services.learner.second_process import SecondProcess
from shared.environment_spec import EnvironmentSpec
from shared.impala_hyperparameters import ImpalaHyperparameters


class ImpalaObjective:
    """IMPALA's loss; it has no state."""

    def __init__(self, network: ActorCritic, hyperparameters: ImpalaHyperparameters) -> None:
        self._network = network
        self._hyperparameters = hyperparameters

    def batch(self, fragments: Fragments, normalisation: Normalisation) -> TrainingBatch:
        """Return the samples of some fragments, V-trace being the present policy's."""
        return build_off_policy_batch(
            fragments,
            policy=self._network,
            critic=self._network,
            rule=self._hyperparameters,
            normalisation=normalisation,
        )

    @property
    def rule(self) -> LossRule:
        """The loss."""
        return ImpalaRule(hyperparameters=self._hyperparameters)

    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:  # noqa: ARG002 - seam
        """Do nothing; there is no stat to add."""
        return {}

    @property
    def flats(self) -> dict[str, Tensor]:
        """No further parameters."""
        return {}

    def scalars(self) -> StateScalars:
        """Return no state."""
        return {}

    def load_scalars(self, scalars: StateScalars) -> None:
        """Do nothing."""


def build_impala(
    environment: EnvironmentSpec,
    hyperparameters: ImpalaHyperparameters,
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
    network = build_network(environment, hyperparameters, seed=int(network_seed), device=device)
    return OffPolicyLearner(
        network,
        ImpalaObjective(network, hyperparameters),
        hyperparameters,
        buffer=ReplayBuffer(batch_size=hyperparameters.train_batch_size, num_batches=1, max_uses=1),
        normalisation=Normalisation.initial(environment, hyperparameters),
        num_epochs=1,
        max_rounds=max_rounds,
        shuffle_seed=int(shuffle_seed),
        second_process=second_process,
    )
