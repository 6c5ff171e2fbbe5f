"""The network for images: autograd's derivatives in the flat buffer, and the actors' own twin."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network, policy_payload
from learning.networks.conv_network import ConvActorCritic
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import PAPER, STANDARD_IMAGES, PpoHyperparameters
from shared.policy.blocks import CONV_NETWORKS, ConvNetworkName
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import load_policy
from tests.learning.networks.test_mlp_network import FixedGradients

DISCRETE, CONTINUOUS = DiscreteActionSpec(n=6), ContinuousActionSpec(low=(-1, -1), high=(1, 1))
CASES = [(PAPER, DISCRETE), (STANDARD_IMAGES, DISCRETE), (STANDARD_IMAGES, CONTINUOUS)]


def images_spec(action: ActionSpec, shape: tuple[int, ...] = (4, 84, 84)) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="ALE/Qbert-v5",
        observation=ObservationSpec(shape=shape, dtype="uint8"),
        action=action,
        max_episode_steps=None,
        versions={},
    )


def images(count: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(256, size=(count, 4, 84, 84), dtype=np.uint8))


def stirred(network: ActorCritic) -> ActorCritic:
    """Away from the first policy, which is nearly the same for all images."""
    noise = torch.randn(network.flat.shape, generator=torch.Generator().manual_seed(1))
    network.flat.add_(noise, alpha=0.02)
    return network


@pytest.mark.parametrize(("hyperparameters", "action"), CASES)
def test_the_gradient_is_autograds(hyperparameters: PpoHyperparameters, action: ActionSpec) -> None:
    network = stirred(build_network(images_spec(action), hyperparameters, seed=0))
    assert isinstance(network, ConvActorCritic)
    with torch.no_grad():  # as the algorithms call it
        seen_outputs, seen_value = network.policy_outputs(images(5)), network.values(images(5))
        d_outputs, d_value = torch.randn_like(seen_outputs), torch.randn_like(seen_value)
        loss, gradient = FixedGradients(d_outputs, d_value), network.new_gradient()
        network.differentiate(images(5), loss, gradient=gradient)
    network.requires_grad_(True)
    seen = images(5).float() / 255
    padding = {"same": [(2, 2, 2, 2), (1, 2, 1, 2)], "valid": []}
    pads = padding["same" if hyperparameters is PAPER else "valid"]
    modules, dense = list(network.policy)[:-1], False
    for i, module in enumerate(modules):
        if isinstance(module, torch.nn.Linear) and not dense:
            seen, dense = seen.flatten(1), True
        seen = torch.nn.functional.pad(seen, pads[i]) if i < len(pads) else seen
        seen = torch.relu(module(seen))
    seen = seen.flatten(1)
    outputs, value = network.policy[-1](seen), network.value[0](seen).squeeze(1)
    if network.log_std is not None:
        outputs = torch.cat((outputs, network.log_std.expand(5, -1)), dim=1)
    for found, expected in ((seen_outputs, outputs), (loss.outputs, outputs)):
        torch.testing.assert_close(found, expected.detach())
    for found, expected in ((seen_value, value), (loss.value, value)):
        torch.testing.assert_close(found, expected.detach())
    ((outputs * d_outputs).sum() + (value * d_value).sum()).backward()
    for name, parameter in network.named_parameters():
        found = network.views_of(gradient.flat)[name]
        torch.testing.assert_close(found, parameter.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("hyperparameters", "action"), CASES)
def test_actors_get_the_same_policy(
    hyperparameters: PpoHyperparameters, action: ActionSpec
) -> None:
    network = stirred(build_network(images_spec(action), hyperparameters, seed=0))
    policy = load_policy(*policy_payload(network))
    assert policy.observation_shape == (4, 84, 84)
    batch = images(3)
    with torch.no_grad():
        expected = network.policy_outputs(batch)[:, : policy.network.output_size]
    np.testing.assert_allclose(policy.outputs(batch.numpy()), expected, atol=1e-5, rtol=0)
    sampler = FragmentSampler(policy, num_steps=1, num_envs=3, rng=np.random.default_rng(0))
    sampler.act(0, batch.numpy())
    chosen = torch.from_numpy(sampler.action[0])
    with torch.no_grad():
        log_prob = network.distribution.log_prob(network.policy_outputs(batch), chosen)
    np.testing.assert_allclose(sampler.log_prob()[0], log_prob, atol=1e-4)


def test_the_same_seed_gives_the_same_network() -> None:
    before = torch.get_rng_state()
    first, second, other = (
        build_network(images_spec(DISCRETE), STANDARD_IMAGES, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first.flat, second.flat)
    assert not torch.equal(first.flat, other.flat)
    assert torch.equal(torch.get_rng_state(), before)


def test_first_weights_are_orthogonal_with_the_published_gains() -> None:
    network = build_network(images_spec(DISCRETE), STANDARD_IMAGES, seed=0)
    for part, gain in (
        (network.policy[0], 2**0.5),
        (network.policy[-1], 0.01),
        (network.value[0], 1),
    ):
        rows = part.get_parameter("weight").flatten(1)
        expected = gain**2 * torch.eye(len(rows))
        torch.testing.assert_close(rows @ rows.T, expected, atol=1e-5, rtol=1e-5)
        assert not part.get_parameter("bias").any()


def test_large_batches_are_answered_in_parts_and_in_order() -> None:
    network = stirred(build_network(images_spec(DISCRETE), PAPER, seed=0))
    batch = images(8).repeat(80, 1, 1, 1)
    with torch.no_grad():
        outputs, values = network.policy_outputs(batch), network.values(batch)
        first, its_values = network.policy_outputs(images(8)), network.values(images(8))
    torch.testing.assert_close(outputs, first.repeat(80, 1))
    torch.testing.assert_close(values, its_values.repeat(80))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("image_shape", "4,84", "image_shape is '4,84', expected channels,height,width"),
        ("image_shape", "4,96,96", r"policy.3.weight has shape \(512, 3136\)"),
        ("image_shape", "4,20,20", "too small"),
        ("network", "paper_cnn", "holds arrays"),
        ("network", "mlp", r"policy.0.weight has shape \(32, 4, 8, 8\)"),
        ("network", "resnet", "network is 'resnet', expected one of"),
        ("activation", "tanh", "activation is 'tanh', expected 'relu'"),
    ],
)
def test_a_malformed_policy_is_refused(field: str, value: str, message: str) -> None:
    network = build_network(images_spec(DISCRETE), STANDARD_IMAGES, seed=0)
    arrays, metadata = policy_payload(network)
    with pytest.raises(PolicyError, match=message):
        load_policy(arrays, {**metadata, field: value})


@pytest.mark.parametrize("name", CONV_NETWORKS)
def test_a_job_chooses_the_network(name: ConvNetworkName) -> None:
    rule = PAPER.model_copy(update={"image_network": name})
    metadata = policy_payload(build_network(images_spec(DISCRETE), rule, seed=0))[1]
    assert metadata["network"] == name
