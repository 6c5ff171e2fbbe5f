"""Recurrent networks and policies for tests."""

from typing import Any

import torch

from learning.networks.building import build_network
from learning.networks.recurrent_network import RecurrentActorCritic
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, load_policy


def recurrent_network(
    environment: EnvironmentSpec, cell: str, *, seed: int = 0, **changes: Any
) -> RecurrentActorCritic:
    """Return a network whose weights are all away from 0."""
    given = {"hidden_sizes": (6,), "recurrent_units": 5, **changes}
    rule = PpoHyperparameters.model_validate({"recurrent": cell, **given})
    network = build_network(environment, rule, seed=seed)
    assert isinstance(network, RecurrentActorCritic)
    generator = torch.Generator().manual_seed(seed)
    network.flat.copy_(torch.randn(network.flat.shape, generator=generator) / 2)
    return network


def recurrent_policy(environment: EnvironmentSpec, cell: str, **changes: Any) -> NumpyPolicy:
    """Return the policy of such a network."""
    network = recurrent_network(environment, cell, **changes)
    return load_policy(network.arrays(), network.spec.metadata())
