"""A policy as data: from a job, from what was published, and both say the same."""

import pytest

from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.blocks import dense_blocks
from shared.policy.head import Head, PolicyError
from shared.policy.spec import PolicySpec

RULES = {
    "plain": PpoHyperparameters(hidden_sizes=(8,)),
    "linear": PpoHyperparameters(hidden_sizes=()),
    "free, normed ReLU": PpoHyperparameters(
        hidden_sizes=(8, 4), activation="relu", layer_norm=True, log_std="free"
    ),
    "another value network": PpoHyperparameters(
        hidden_sizes=(8,), value_hidden_sizes=(5, 5), activation="elu"
    ),
    "Nature's": PpoHyperparameters(image_network="nature_cnn"),
}
ACTIONS: list[ActionSpec] = [
    ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
    DiscreteActionSpec(n=5),
    MultiDiscreteActionSpec(num_choices=(2, 3)),
]


def environment(action: ActionSpec, shape: tuple[int, ...]) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=shape, dtype="float32" if len(shape) < 3 else "uint8"),
        action=action,
        max_episode_steps=None,
        versions={},
    )


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (4, 84, 84)])
def test_what_is_published_is_what_the_job_says(
    name: str, action: ActionSpec, shape: tuple[int, ...]
) -> None:
    its, rule = environment(action, shape), RULES[name]
    arrays, metadata = policy_payload(build_network(its, rule, seed=0))
    spec = PolicySpec.of(its, rule)
    read = PolicySpec.read(metadata, {name: array.shape for name, array in arrays.items()})
    assert (read.blocks, read.head, read.network) == (spec.blocks, spec.head, spec.network)
    assert spec.num_weights == sum(array.size for array in arrays.values())


METADATA = {"format": "nitro-policy/1", "network": "mlp", "activation": "tanh"}
CATEGORICAL = METADATA | {"distribution": "categorical", "log_std": "none"}
SHAPES = {"policy.0.weight": (3, 4), "policy.0.bias": (3,)}


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({}, "make no network"),
        ({"policy.0.bias": (3,)}, "make no network"),
        ({"policy.0.weight": (3, 4)}, r"expected \['policy.0.bias', 'policy.0.weight'\]"),
        ({"policy.0.weight": (), "policy.0.bias": ()}, "make no network"),
        ({"policy.0.weight": (0, 4), "policy.0.bias": (0,)}, "make no network"),
        (SHAPES | {"policy.0.bias": (4,)}, r"policy.0.bias has shape \(4,\), expected \(3,\)"),
        (SHAPES | {"policy.0.weight": (3, 4, 1)}, r"policy.0.weight has shape \(3, 4, 1\)"),
        (
            SHAPES | {"policy.1.weight": (2, 4), "policy.1.bias": (2,)},
            r"policy.1.weight has shape \(2, 4\), expected \(2, 3\)",
        ),
        (SHAPES | {"policy.2.bias": (2,)}, "holds arrays"),
        (SHAPES | {"log_std": (3,)}, "holds arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_named(shapes: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        PolicySpec.read(CATEGORICAL, shapes)


def test_a_layer_norm_in_a_network_for_images_is_refused() -> None:
    its = environment(ACTIONS[1], (4, 84, 84))
    arrays, metadata = policy_payload(build_network(its, RULES["Nature's"], seed=0))
    shapes = {name: array.shape for name, array in arrays.items()}
    with pytest.raises(PolicyError, match="layer_norm is 'yes', expected 'no'"):
        PolicySpec.read(metadata | {"layer_norm": "yes"}, shapes)


def test_a_spec_without_hidden_layers_says_so_too() -> None:
    head = Head(distribution="gaussian", log_std="free", size=2)
    spec = PolicySpec(network="mlp", blocks=dense_blocks((4, 2), activation="relu"), head=head)
    assert PolicySpec.read(spec.metadata(), spec.shapes) == spec
