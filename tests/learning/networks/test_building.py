"""The network as actors and trainer see it: initial weights, payload, flat storage."""

import math

import numpy as np
import pytest
import torch

from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from tests.learning.trajectories import CONTINUOUS, DISCRETE

SMALL = PpoHyperparameters(hidden_sizes=(8, 7))
FREE = PpoHyperparameters(hidden_sizes=(8, 7), log_std="free")


@pytest.mark.parametrize(
    ("environment", "hyperparameters", "shapes", "log_std"),
    [
        (CONTINUOUS, SMALL, [(8, 5), (7, 8), (4, 7)], "state_dependent"),
        (CONTINUOUS, FREE, [(8, 5), (7, 8), (2, 7)], "free"),
        (DISCRETE, SMALL, [(8, 4), (7, 8), (3, 7)], "none"),
    ],
)
def test_payload_has_exactly_the_names_shapes_and_metadata_actors_expect(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    shapes: list[tuple[int, int]],
    log_std: str,
) -> None:
    arrays, metadata = policy_payload(build_network(environment, hyperparameters, seed=0))
    expected: dict[str, tuple[int, ...]] = {}
    for i, shape in enumerate(shapes):
        expected |= {f"policy.{i}.weight": shape, f"policy.{i}.bias": shape[:1]}
    if log_std == "free":
        expected["log_std"] = (2,)
    assert {name: array.shape for name, array in arrays.items()} == expected
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert metadata == {
        "format": "nitro-policy/1",
        "network": "mlp",
        "activation": "tanh",
        "distribution": "categorical" if environment is DISCRETE else "gaussian",
        "log_std": log_std,
    }


@pytest.mark.parametrize("hyperparameters", [SMALL, FREE])
def test_payload_computes_the_same_outputs_in_numpy(hyperparameters: PpoHyperparameters) -> None:
    network = build_network(CONTINUOUS, hyperparameters, seed=3)
    arrays, _ = policy_payload(network)
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    h = x
    for i in range(2):
        h = np.tanh(h @ arrays[f"policy.{i}.weight"].T + arrays[f"policy.{i}.bias"])
    outputs = h @ arrays["policy.2.weight"].T + arrays["policy.2.bias"]
    if "log_std" in arrays:
        outputs = np.concatenate((outputs, np.broadcast_to(arrays["log_std"], (6, 2))), axis=1)
    found = network.policy_outputs(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, outputs, atol=1e-6)


def test_units_start_with_rllibs_norms_and_zero_biases() -> None:
    arrays, _ = policy_payload(build_network(CONTINUOUS, SMALL, seed=0))
    for i, norm in enumerate((1.0, 1.0, 0.01)):
        rows = np.linalg.norm(arrays[f"policy.{i}.weight"], axis=1)
        np.testing.assert_allclose(rows, norm, rtol=1e-5)
        assert not arrays[f"policy.{i}.bias"].any()


def test_orthogonal_weights_are_torchs_with_the_published_gains_and_zero_biases() -> None:
    network = build_network(CONTINUOUS, STANDARD, seed=4)
    generator = torch.Generator().manual_seed(4)
    views = network.views_of(network.flat)
    for part, output_gain in (("policy", 0.01), ("value", 1.0)):
        for i, gain in enumerate((math.sqrt(2.0), math.sqrt(2.0), output_gain)):
            weight = views[f"{part}.{i}.weight"]
            expected = torch.nn.init.orthogonal_(
                torch.empty(weight.shape), gain, generator=generator
            )
            torch.testing.assert_close(weight, expected, rtol=0.0, atol=0.0)
            small = weight if weight.shape[0] <= weight.shape[1] else weight.t()
            identity = gain**2 * torch.eye(len(small))
            torch.testing.assert_close(small @ small.t(), identity, rtol=0.0, atol=1e-5)
            assert not views[f"{part}.{i}.bias"].any()
    assert not views["log_std"].any()


def test_equal_seeds_build_equal_networks_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = (build_network(CONTINUOUS, SMALL, seed=5) for _ in range(2))
    assert torch.equal(first.flat, second.flat)
    assert not torch.equal(first.flat, build_network(CONTINUOUS, SMALL, seed=6).flat)
    assert torch.equal(torch.get_rng_state(), before)


def test_policy_and_value_start_apart() -> None:
    network = build_network(CONTINUOUS, SMALL, seed=0)
    views = network.views_of(network.flat)
    assert not torch.equal(views["policy.0.weight"], views["value.0.weight"])


def test_the_flat_buffer_is_the_modules_parameters() -> None:
    network = build_network(CONTINUOUS, FREE, seed=0)
    views = network.views_of(network.flat)
    assert list(views) == [name for name, _ in network.named_parameters()]
    network.flat.add_(1.0)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter.data, views[name])
        assert parameter.data_ptr() == views[name].data_ptr()


def test_the_payload_is_a_copy() -> None:
    network = build_network(CONTINUOUS, SMALL, seed=0)
    arrays, _ = policy_payload(network)
    network.flat.zero_()
    assert arrays["policy.0.weight"].any()


def test_values_are_those_of_the_modules_own_layers() -> None:
    network = build_network(CONTINUOUS, SMALL, seed=0)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    h = x
    for layer in network.value[:-1]:
        h = torch.tanh(layer(h))
    torch.testing.assert_close(network.values(x), network.value[-1](h).squeeze(1))
