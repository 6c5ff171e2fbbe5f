"""Learners and rounds for the tests of off-policy algorithms."""

from learning.algorithms.algorithm import Algorithm
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters import impact as impact_hyperparameters
from shared.hyperparameters import impala as impala_hyperparameters
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.trajectory.trajectory import Trajectory
from tests.learning.trajectories import make_trajectory

SMALL = {"hidden_sizes": (8, 8), "train_batch_size": 96, "minibatch_size": 20}
"""Two trajectories of 48 steps make a batch."""
IMPACT = ImpactHyperparameters(
    **SMALL, buffer_batches=2, buffer_uses=3, target_update_frequency=0.5, learning_rate=1e-3
)
IMPACT_STANDARD = impact_hyperparameters.STANDARD.model_copy(
    update={**SMALL, "buffer_batches": 2, "buffer_uses": 3}
)
IMPALA = ImpalaHyperparameters(**SMALL)
IMPALA_STANDARD = impala_hyperparameters.STANDARD.model_copy(update=SMALL)
MAX_ROUNDS = 8

OffPolicyHyperparameters = ImpactHyperparameters | ImpalaHyperparameters
Learner = Impact | Impala


def learner(
    environment: EnvironmentSpec, hyperparameters: OffPolicyHyperparameters, *, seed: int = 7
) -> Learner:
    """A new learner."""
    if isinstance(hyperparameters, ImpactHyperparameters):
        return Impact(environment, hyperparameters, seed=seed, max_rounds=MAX_ROUNDS)
    return Impala(environment, hyperparameters, seed=seed, max_rounds=MAX_ROUNDS)


def round_of(
    made_by: Learner,
    environment: EnvironmentSpec,
    round_index: int,
    *,
    num_actors: int = 3,
    policy_version: int | None = None,
) -> list[Trajectory]:
    """Trajectories of 48 steps by the learner's present policy."""
    version = round_index if policy_version is None else policy_version
    return [
        make_trajectory(environment, made_by.network, actor_index=i, seed=round_index).replaced(
            round=round_index,
            policy_version=version,
        )
        for i in range(num_actors)
    ]


def assert_same_state(one: Algorithm, other: Algorithm) -> None:
    """Fail unless both would go on alike to the last bit."""
    (arrays, scalars), (other_arrays, other_scalars) = one.state(), other.state()
    assert scalars == other_scalars
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        assert array.tobytes() == other_arrays[name].tobytes(), name
