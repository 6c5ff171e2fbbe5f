"""Forward passes and gradients, through NumPy and through torch, of small and large networks."""

import copy
import math
import warnings
from typing import Generic

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.algorithms.ppo import Ppo
from learning.arrays import Array
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network, policy_payload
from learning.networks.numpy_mlp import LARGE_PRODUCT
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

SMALL = PpoHyperparameters(hidden_sizes=(24, 16))
CASES = [
    (CONTINUOUS, SMALL),
    (CONTINUOUS, SMALL.model_copy(update={"log_std": "free"})),
    (CONTINUOUS, SMALL.model_copy(update={"hidden_sizes": (8,)})),
    (CONTINUOUS, SMALL.model_copy(update={"hidden_sizes": ()})),
    (DISCRETE, SMALL),
    (CONTINUOUS, SMALL.model_copy(update={"activation": "elu", "value_hidden_sizes": (12,)})),
    (DISCRETE, SMALL.model_copy(update={"activation": "relu", "layer_norm": True})),
    (CONTINUOUS, SMALL.model_copy(update={"value_hidden_sizes": (16, 24)})),
]
FEW = 37
MANY = LARGE_PRODUCT // (16 * 24) + 1
"""Samples from which on SMALL counts as large."""


class FixedGradients(Generic[Array]):
    """A loss whose gradients are the same everywhere; keeps what it was asked at."""

    outputs: Array
    value: Array

    def __init__(self, d_outputs: Array, d_value: Array) -> None:
        self._d_outputs: Array = d_outputs
        self._d_value: Array = d_value

    def policy_gradient(self, outputs: Array) -> Array:
        assert outputs.shape == self._d_outputs.shape
        self.outputs = outputs
        return self._d_outputs

    def value_gradient(self, value: Array) -> Array:
        assert value.shape == self._d_value.shape
        self.value = value
        return self._d_value


def network_and_data(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, num_samples: int
) -> tuple[ActorCritic, Tensor, Tensor, Tensor]:
    """Return a network away from its start, observations, and the gradients of some objective."""
    network = build_network(environment, hyperparameters, seed=1)
    generator = torch.Generator().manual_seed(num_samples)
    network.flat.add_(torch.randn(network.flat.shape, generator=generator), alpha=0.3)
    size = math.prod(environment.observation.shape)
    observation = torch.randn(num_samples, size, generator=generator)
    d_outputs = torch.randn(network.policy_outputs(observation).shape, generator=generator)
    return network, observation, d_outputs, torch.randn(num_samples, generator=generator)


ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "elu": torch.nn.functional.elu}


def plain(
    named: dict[str, Tensor],
    part: str,
    x: Tensor,
    hyperparameters: PpoHyperparameters = SMALL,
) -> Tensor:
    """Return the outputs of `policy` or `value` at `x`, by plain torch."""
    count = sum(name.startswith(f"{part}.") for name in named) // 2
    for i in range(count):
        x = torch.nn.functional.linear(x, named[f"{part}.{i}.weight"], named[f"{part}.{i}.bias"])
        if i < count - 1:
            if hyperparameters.layer_norm:
                x = torch.nn.functional.layer_norm(x, x.shape[1:])
            x = ACTIVATIONS[hyperparameters.activation](x)
    return x


def gradient_of(
    network: ActorCritic, observation: Tensor, d_outputs: Tensor, d_value: Tensor
) -> dict[str, Tensor]:
    gradient = network.new_gradient()
    gradient.flat.fill_(7.0)  # must be overwritten
    network.differentiate(observation, FixedGradients(d_outputs, d_value), gradient=gradient)
    return network.views_of(gradient.flat)


@pytest.mark.parametrize("num_samples", [1, FEW, MANY])
@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_answers_and_gradients_agree_with_autograd(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, num_samples: int
) -> None:
    network, observation, d_outputs, d_value = network_and_data(
        environment, hyperparameters, num_samples
    )
    leaves = {
        name: parameter.detach().double().requires_grad_()
        for name, parameter in network.named_parameters()
    }
    outputs = plain(leaves, "policy", observation.double(), hyperparameters)
    if "log_std" in leaves:
        outputs = torch.cat((outputs, leaves["log_std"].expand(num_samples, -1)), dim=1)
    value = plain(leaves, "value", observation.double(), hyperparameters).squeeze(1)

    loss, gradient = FixedGradients(d_outputs, d_value), network.new_gradient()
    gradient.flat.fill_(7.0)  # must be overwritten
    network.differentiate(observation, loss, gradient=gradient)
    for answer, wanted in ((loss.outputs, outputs), (loss.value, value)):
        torch.testing.assert_close(answer.double(), wanted.detach(), rtol=1e-4, atol=1e-5)

    objective = (outputs * d_outputs).sum() + (value * d_value).sum()
    expected = torch.autograd.grad(objective, [*leaves.values()])
    found = network.views_of(gradient.flat)
    for name, wanted in zip(leaves, expected, strict=True):
        scale = float(wanted.abs().max())
        torch.testing.assert_close(
            found[name].double(), wanted, rtol=1e-3, atol=1e-5 * scale, msg=name
        )


def test_a_pass_sees_parameters_changed_in_place_and_none_of_a_copys() -> None:
    network, observation, d_outputs, d_value = network_and_data(CONTINUOUS, SMALL, FEW)
    before = network.policy_outputs(observation).clone()
    other = copy.deepcopy(network)
    other.flat.mul_(0.5)
    assert torch.equal(network.policy_outputs(observation), before)
    assert not torch.equal(other.policy_outputs(observation), before)
    network.flat.mul_(0.5)
    assert torch.equal(network.policy_outputs(observation), other.policy_outputs(observation))
    ours, theirs = (gradient_of(each, observation, d_outputs, d_value) for each in (network, other))
    for name, view in ours.items():
        assert torch.equal(view, theirs[name])


def test_a_copied_learner_learns_as_the_original_does() -> None:
    original = Ppo(CONTINUOUS, SMALL, seed=0)
    trajectories = [make_trajectory(CONTINUOUS, original.network, actor_index=i) for i in range(2)]
    original.learn(trajectories)
    other = copy.deepcopy(original)
    before = other.network.flat.clone()
    for ppo in (original, other):
        ppo.learn(trajectories)
    assert torch.equal(other.network.flat, original.network.flat)
    assert not torch.equal(other.network.flat, before)
    ours, theirs = (ppo.policy_payload()[0] for ppo in (original, other))
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array)


@pytest.mark.parametrize("num_samples", [1, FEW, MANY])
@pytest.mark.parametrize("hyperparameters", [parameters for _, parameters in CASES[:3]])
def test_arrays_and_tensors_give_one_gradient(
    hyperparameters: PpoHyperparameters, num_samples: int
) -> None:
    network, observation, d_outputs, d_value = network_and_data(
        CONTINUOUS, hyperparameters, num_samples
    )
    expected = network.new_gradient()
    network.differentiate(observation, FixedGradients(d_outputs, d_value), gradient=expected)
    found = network.new_gradient()
    found.flat.copy_(torch.where(expected.flat == 0.0, 0.0, 7.0))  # gaps are not written to
    gradients = FixedGradients(d_outputs.numpy(), d_value.numpy())
    network.differentiate_arrays(observation.numpy(), gradients, gradient=found)
    torch.testing.assert_close(found.flat, expected.flat, rtol=1e-4, atol=1e-5 * num_samples**0.5)


@pytest.mark.parametrize("moving", [0, 1, MANY // 2, MANY // 2 + 1])
def test_samples_without_a_derivative_change_no_gradient(moving: int) -> None:
    """Those of large networks are left out where they are many; autograd walks through all."""
    network, observation, d_outputs, d_value = network_and_data(CONTINUOUS, SMALL, MANY)
    order = torch.randperm(MANY, generator=torch.Generator().manual_seed(moving))
    for derivative in (d_outputs, d_value):
        derivative[order[moving:]] = 0.0
    named = {k: v.clone().requires_grad_() for k, v in network.named_parameters()}
    raw = plain(named, "policy", observation)
    value = plain(named, "value", observation).squeeze(1)
    loss = (raw * d_outputs).sum() + (value * d_value).sum()
    expected = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    gradient = network.new_gradient()
    gradient.flat.fill_(7.0)  # must be overwritten
    gradients = FixedGradients(d_outputs.numpy(), d_value.numpy())
    network.differentiate_arrays(observation.numpy(), gradients, gradient=gradient)
    for name, found in network.views_of(gradient.flat).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-4, atol=1e-4)


def test_gaussian_networks_on_the_cpu_take_arrays_and_no_others() -> None:
    network = build_network(CONTINUOUS, SMALL, seed=0)
    assert network.array_terms() is not None
    linear = SMALL.model_copy(update={"hidden_sizes": ()})
    for environment, hyperparameters in ((CONTINUOUS, linear), (DISCRETE, SMALL)):
        assert build_network(environment, hyperparameters, seed=0).array_terms() is None
    network.flatten(torch.float64)
    assert network.array_terms() is None


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 1e38])
def test_numbers_out_of_range_come_through_without_a_warning(broken: float) -> None:
    network, observation, d_outputs, d_value = network_and_data(CONTINUOUS, SMALL, FEW)
    network.views_of(network.flat)["value.2.weight"].fill_(broken)
    with warnings.catch_warnings(), network.without_graph():
        warnings.simplefilter("error")
        assert not torch.isfinite(network.values(observation)).all()
        found = gradient_of(network, observation, d_outputs, d_value * 1e38)
    assert not torch.isfinite(found["value.0.weight"]).all()
    assert torch.isfinite(found["policy.0.weight"]).all()


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_actors_compute_what_the_learner_does(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    network, observation, _, _ = network_and_data(environment, hyperparameters, FEW)
    policy = load_policy(*policy_payload(network))
    width = policy.network.output_size
    np.testing.assert_allclose(
        policy.outputs(observation.numpy()),
        network.policy_outputs(observation).numpy()[:, :width],
        rtol=1e-4,
        atol=1e-5,
    )


def test_the_value_network_has_its_own_sizes() -> None:
    own = SMALL.model_copy(update={"value_hidden_sizes": (16, 24)})
    network, shared = (build_network(CONTINUOUS, each, seed=1) for each in (own, SMALL))
    assert [len(layer.get_parameter("bias")) for layer in network.policy][:2] == [24, 16]
    assert [len(layer.get_parameter("bias")) for layer in network.value] == [16, 24, 1]
    assert [len(layer.get_parameter("bias")) for layer in shared.value] == [24, 16, 1]
