"""Images beside other parts: a network that learner, actors and torch's own modules have alike."""

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from learning.data.normalisation import Normalisation
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network, policy_payload
from learning.networks.conv_network import ConvActorCritic
from nitro.runs.onnx_graph import policy_graph
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import PAPER, STANDARD_IMAGES, PpoHyperparameters
from shared.hyperparameters.presets import ALGORITHMS
from shared.policy.blocks import Parts
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import load_policy, with_actions
from shared.policy.spec import PolicySpec
from tests.learning.networks.test_conv_network import stirred
from tests.learning.networks.test_mlp_network import FixedGradients
from tests.shared.policy.torch_blocks import torch_network

IMAGES = ((3, 40, 44), (1, 7, 9))
PIXELS, NUMBERS = 3 * 40 * 44 + 63, 6
RULES = {
    "paper": PAPER,
    "standard": STANDARD_IMAGES,
    "two hidden layers of other widths": STANDARD_IMAGES.model_copy(
        update={"value_hidden_sizes": (5, 6, 7), "activation": "elu", "layer_norm": True}
    ),
    "normalised": STANDARD_IMAGES.model_copy(update={"observation_normalisation": True}),
    "linear": PAPER.model_copy(update={"hidden_sizes": ()}),
}


def parts_spec(*, masked: bool = False) -> EnvironmentSpec:
    action: Any = ContinuousActionSpec(low=(-1, -1), high=(1, 1))
    observation = {
        "shape": (PIXELS + NUMBERS,),
        "dtype": "float32",
        "images": IMAGES,
        "action_mask": masked,
    }
    return EnvironmentSpec(
        env_id="Own/Eyes-v0",
        observation=ObservationSpec.model_validate(observation),
        action=DiscreteActionSpec(n=4) if masked else action,
        max_episode_steps=None,
        versions={},
    )


def rows(count: int, *, masked: bool = False) -> Tensor:
    rng = np.random.default_rng(0)
    found = rng.integers(256, size=(count, PIXELS + NUMBERS)).astype(np.float32)
    found[:, PIXELS:] = rng.standard_normal((count, NUMBERS)) * 3
    if masked:
        found[:, -4:] = 1 - np.resize(np.eye(4), (count, 4))
    return torch.from_numpy(found)


def network_of(rule: PpoHyperparameters, *, masked: bool = False) -> ActorCritic:
    return stirred(build_network(parts_spec(masked=masked), rule, seed=0))


def by_torchs_modules(network: ActorCritic, part: str, seen: Tensor) -> Tensor:
    """The outputs that the network's parameters give in torch's own modules."""
    first, *behind = network.spec.blocks
    assert isinstance(first, Parts)
    sizes, features = [math.prod(shape) for shape in IMAGES], []
    given = iter([*network.policy])
    *images, numbers = torch.split(seen, [*sizes, NUMBERS], 1)
    for blocks, shape, image in zip(first.networks, IMAGES, images, strict=True):
        oracle = torch_network(blocks)
        for module in oracle:
            if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
                layer: Any = next(given)
                module.weight, module.bias = layer.weight, layer.bias
        features.append(oracle(image.view(-1, *shape)))
    found = torch.cat((*features, numbers), 1)
    *hidden, last = [*given] if part == "policy" else [*network.value]
    dense: Any = behind[0]
    for layer in hidden:
        found = layer(found)
        if dense.layer_norm:
            found = torch.nn.functional.layer_norm(found, found.shape[1:])
        found = torch.tanh(found) if dense.activation == "tanh" else torch.nn.functional.elu(found)
    outputs: Tensor = last(found)
    return outputs


@pytest.mark.parametrize("name", RULES)
def test_outputs_and_gradient_are_those_of_torchs_own_modules(name: str) -> None:
    network, seen = network_of(RULES[name]), rows(5)
    assert isinstance(network, ConvActorCritic)
    with torch.no_grad():  # as the algorithms call it
        seen_outputs, seen_value = network.policy_outputs(seen), network.values(seen)
        d_outputs, d_value = torch.randn_like(seen_outputs), torch.randn_like(seen_value)
        loss, gradient = FixedGradients(d_outputs, d_value), network.new_gradient()
        network.differentiate(seen, loss, gradient=gradient)
    network.requires_grad_(True)
    outputs = by_torchs_modules(network, "policy", seen)
    value = by_torchs_modules(network, "value", seen).squeeze(1)
    if network.log_std is not None:
        outputs = torch.cat((outputs, network.log_std.expand(5, -1)), dim=1)
    for found, expected in ((seen_outputs, outputs), (loss.outputs, outputs)):
        torch.testing.assert_close(found, expected.detach())
    for found, expected in ((seen_value, value), (loss.value, value)):
        torch.testing.assert_close(found, expected.detach())
    total: Any = (outputs * d_outputs).sum() + (value * d_value).sum()
    total.backward()
    for parameter_name, parameter in network.named_parameters():
        found = network.views_of(gradient.flat)[parameter_name]
        torch.testing.assert_close(found, parameter.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_actors_get_the_same_policy(name: str, *, masked: bool) -> None:
    rule, environment = RULES[name], parts_spec(masked=masked)
    network, seen = network_of(rule, masked=masked), rows(3, masked=masked)
    normalisation = Normalisation.initial(environment, rule)
    if normalisation.observations is not None:
        moments = normalisation.observations.moments.including(rows(40)[:, PIXELS:].numpy())
        observations = type(normalisation.observations)(
            moments=moments, bound=1.5, mask_size=environment.mask_size
        )
        normalisation = Normalisation(observations=observations)
    arrays, metadata = policy_payload(network)
    statistics, clip = normalisation.payload()
    policy = load_policy({**arrays, **statistics}, {**metadata, **clip})
    assert policy.observation_shape == (PIXELS + NUMBERS,)
    spec = PolicySpec.of(environment, rule)
    assert (policy.spec.blocks, policy.spec.num_weights) == (spec.blocks, spec.num_weights)
    assert policy.spec.shapes == spec.shapes
    normalised = normalisation.seen(seen)
    assert torch.equal(normalised[:, :PIXELS], seen[:, :PIXELS])
    with torch.no_grad():
        expected = network.policy_outputs(normalised)[:, : policy.network.output_size]
    np.testing.assert_allclose(policy.outputs(seen.numpy()), expected, atol=1e-5, rtol=1e-6)
    sampler = FragmentSampler(policy, num_steps=1, num_envs=3, rng=np.random.default_rng(0))
    sampler.act(0, seen.numpy())
    chosen = torch.from_numpy(sampler.action[0])
    with torch.no_grad():
        log_prob = network.distribution.log_prob(network.policy_outputs(normalised), chosen)
    np.testing.assert_allclose(sampler.log_prob()[0], log_prob, atol=1e-4)


@pytest.mark.parametrize("name", RULES)
def test_learner_actor_and_graph_agree_within_1e_5(name: str) -> None:
    far = ContinuousActionSpec(low=(-1e3, -1e3), high=(1e3, 1e3))  # no mean is clipped
    environment = parts_spec().model_copy(update={"action": far})
    rule = RULES[name].model_copy(
        update={"action_mapping": "clip", "observation_normalisation": False}
    )
    network, seen = stirred(build_network(environment, rule, seed=0)), rows(8)
    arrays, metadata = policy_payload(network)
    metadata["action_mapping"] = "clip"
    with torch.no_grad():
        learner = network.policy_outputs(seen)[:, :2].numpy()
    acted: list[Any] = [load_policy(arrays, with_actions(metadata, far)).act(seen.numpy())]
    model = policy_graph(
        arrays, metadata, observation=environment.observation, action=environment.action
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    acted += session.run(None, {"observation": seen.numpy()})
    for found in acted:
        np.testing.assert_allclose(found, learner, atol=1e-5, rtol=0)


def test_bytes_are_the_same_numbers() -> None:
    policy = load_policy(*policy_payload(network_of(PAPER, masked=True)))
    seen = np.random.default_rng(3).integers(256, size=(4, PIXELS + NUMBERS), dtype=np.uint8)
    seen[:, -4:] = 1 - np.eye(4, dtype=np.uint8)
    outputs = np.empty((2, 4, 4), np.float32)
    both: list[Any] = [seen, seen.astype(np.float32)]
    for out, given in zip(outputs, both, strict=True):
        policy.network.forward_pass(4)(given, out)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert (np.diag(outputs[0]) < -1e8).all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("image_shapes", "3,40", "image_shapes is '3,40' of nature_cnn, expected channels"),
        ("image_shapes", "3,40,44;", "image_shapes is"),
        ("image_shapes", "3,40,44", "holds arrays|policy.4.weight has shape"),
        ("image_shapes", "3,40,44;1,3,9", "too small"),
        ("image_shapes", ";".join(["1,7,9"] * 9), "layers, too few for images"),
        ("numbers", "-1", "numbers is '-1', expected a number from 0"),
        ("numbers", "7", r"policy.8.weight has shape \(64, 646\), expected \(64, 647\)"),
        ("network", "small_cnn", "image_shapes is .* of small_cnn"),
        ("network", "mlp", "image_shapes is .* of mlp|policy.0.weight has shape"),
    ],
)
def test_a_malformed_policy_is_refused(field: str, value: str, message: str) -> None:
    arrays, metadata = policy_payload(network_of(STANDARD_IMAGES))
    with pytest.raises(PolicyError, match=message):
        load_policy(arrays, {**metadata, field: value})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_for_vectors_refuse_images_among_parts(name: str) -> None:
    takes = name in ("ppo", "impact", "impala")
    assert ALGORITHMS[name].unfit(parts_spec()) == (None if takes else "observes images")


def test_recurrent_cells_beside_images_are_refused() -> None:
    with pytest.raises(ValueError, match="have images, and recurrent cells are for vectors"):
        PolicySpec.of(parts_spec(), PpoHyperparameters(recurrent="gru"))
