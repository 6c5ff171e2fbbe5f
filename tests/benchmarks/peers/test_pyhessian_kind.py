import pytest
import torch
from torch import Tensor

from benchmarks.peers import pyhessian_kind
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.detectors.test_surrogate import objective_of
from tests.learning.detectors.test_surrogate_conv import CASES, network_of, samples_of

ENVIRONMENT = EnvironmentSpec(
    env_id="Test-v0",
    observation=ObservationSpec(shape=(5,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0, -1.0), high=(1.0, 1.0)),
    max_episode_steps=None,
    versions={},
)


def test_finds_both_ends_of_the_dense_hessian() -> None:
    network = build_network(ENVIRONMENT, PpoHyperparameters(hidden_sizes=(12, 12)), seed=0)
    generator = torch.Generator().manual_seed(1)
    observation = torch.randn((64, 5), generator=generator)
    expect_both_ends(network, observation, torch.randn((64, 2), generator=generator))


def test_finds_both_ends_for_a_convolutional_network() -> None:
    case = CASES[0]
    network = network_of(case)
    network.flatten(dtype=torch.float32)
    observation, action, _ = samples_of(case, count=64)
    expect_both_ends(network, observation, action)


def expect_both_ends(network: ActorCritic, observation: Tensor, action: Tensor) -> None:
    generator = torch.Generator().manual_seed(2)
    nothing = torch.zeros(64)
    batch = Columns(
        observation=observation,
        action=action,
        advantage=torch.randn(64, generator=generator),
        value_target=nothing,
        value=nothing,
        log_prob=nothing,
        outputs=network.policy_outputs(observation),
        behaviour_log_prob=nothing,
    )
    surrogate = objective_of(network, observation, batch.action, batch.advantage)
    rows = [surrogate.hessian_product(row).clone() for row in torch.eye(surrogate.size)]
    values = torch.linalg.eigvalsh(torch.stack(rows).double())
    found = pyhessian_kind.extreme_eigenvalues(network, batch, torch.arange(64))
    assert found == pytest.approx((float(values[-1]), float(values[0])), rel=1e-3)
