"""Policies out of other libraries' weights, by name; what is not supported is refused by name."""

import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from nitro.pool.policy import PolicyNotSupportedError
from nitro.pool.policy_maps import POLICY_MAPS, PolicyMap, named_map, policy_of
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from tests.nitro.pool.pools import Agent
from tests.nitro.pool.test_policy import environment


def test_an_agent_of_cleanrls_has_mean_and_deviation() -> None:
    agent = Agent(11, 3)
    policy = policy_of(agent, "cleanrl")
    assert [weight.shape for weight in policy.weights] == [(16, 11), (16, 16), (3, 16)]
    assert policy.log_std is not None
    np.testing.assert_allclose(policy.log_std, [-0.5] * 3)
    assert (policy.activation, policy.action_mapping) == ("tanh", "clip")


def test_a_discrete_agent_of_cleanrls_is_its_actor() -> None:
    agent = nn.ModuleDict({"actor": nn.Sequential(nn.Linear(4, 2)), "critic": nn.Linear(4, 1)})
    policy = policy_of(agent, "cleanrl")
    assert [weight.shape for weight in policy.weights] == [(2, 4)]
    assert policy.log_std is None


def test_stable_baselines_names_are_known() -> None:
    module = nn.Module()
    module.mlp_extractor = nn.Module()
    module.mlp_extractor.policy_net = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()
    )
    module.mlp_extractor.value_net = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    module.action_net = nn.Linear(8, 2)
    module.log_std = nn.Parameter(torch.zeros(2))
    policy = policy_of(module, "sb3")
    assert [weight.shape for weight in policy.weights] == [(8, 6), (8, 8), (2, 8)]
    assert policy.activation == "relu"
    np.testing.assert_array_equal(policy.weights[-1], module.action_net.weight.detach().numpy())


@pytest.mark.parametrize("encoder", ["encoder.actor_encoder.net.mlp", "encoder.encoder.net.mlp"])
def test_rllibs_names_are_known_with_shared_layers_and_without(encoder: str) -> None:
    state = {
        f"{encoder}.0.weight": np.ones((8, 6)),
        f"{encoder}.0.bias": np.zeros(8),
        f"{encoder}.2.weight": np.ones((8, 8)),
        f"{encoder}.2.bias": np.zeros(8),
        "encoder.critic_encoder.net.mlp.0.weight": np.ones((9, 6)),
        "pi.net.mlp.0.weight": np.ones((4, 8)),
        "pi.net.mlp.0.bias": np.zeros(4),
        "pi.log_std_clip_param_const": np.array([20.0]),
        "vf.net.mlp.0.weight": np.ones((1, 8)),
    }
    policy = policy_of(state, "rllib")
    assert [weight.shape for weight in policy.weights] == [(8, 6), (8, 8), (4, 8)]
    assert policy.log_std is None
    assert policy.action_mapping == "rescale"


def test_layers_of_a_mapping_are_in_the_order_of_their_numbers() -> None:
    state = {
        f"{i}.{part}": np.full((2, 2) if part == "weight" else 2, i, np.float64)
        for i in (10, 0, 2)
        for part in ("weight", "bias")
    }
    policy = policy_of(state)
    assert [float(weight[0, 0]) for weight in policy.weights] == [0.0, 2.0, 10.0]
    assert {weight.dtype for weight in policy.weights} == {np.dtype(np.float32)}


def test_a_map_of_ones_own_names_the_parts() -> None:
    module = nn.ModuleDict(
        {"body": nn.Sequential(nn.Linear(3, 4), nn.Tanh()), "head": nn.Linear(4, 2, bias=False)}
    )
    policy = policy_of(module, PolicyMap(layers=("body", "head"), action_mapping="rescale"))
    assert [bias.tolist() for bias in policy.biases][-1] == [0.0, 0.0]
    assert policy.action_mapping == "rescale"


def test_weights_are_copied() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    policy = policy_of(module)
    before = policy.weights[0].copy()
    nn.init.zeros_(module.get_parameter("0.weight"))
    np.testing.assert_array_equal(policy.weights[0], before)
    assert policy_of(policy) is policy


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 2)], "1 is GELU: supported are linear"),
        ([nn.Conv2d(1, 1, 1)], "0 is Conv2d"),
        ([nn.Linear(2, 2), nn.Linear(2, 2)], r"1 \(Linear\) is out of order"),
        ([nn.Linear(2, 2), nn.Tanh()], "end with no linear layer"),
        (
            [nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)],
            "relu and tanh are mixed",
        ),
    ],
)
def test_other_layers_are_refused_by_name(layers: list[nn.Module], told: str) -> None:
    with pytest.raises(PolicyNotSupportedError, match=told):
        policy_of(nn.Sequential(*layers))


def test_a_recurrent_agent_is_refused() -> None:
    module = nn.Sequential(OrderedDict(body=nn.LSTM(2, 2), head=nn.Linear(2, 2)))
    with pytest.raises(PolicyNotSupportedError, match="body is LSTM"):
        policy_of(module)


def test_a_recurrent_layer_that_a_map_does_not_name_is_refused() -> None:
    agent = Agent(3, 2)
    agent.lstm = nn.LSTM(3, 3)
    for cells in (nn.LSTM(3, 3), nn.Sequential(nn.GRUCell(3, 3))):
        agent.lstm = cells
        with pytest.raises(PolicyNotSupportedError, match=r"lstm(\.0)? is (LSTM|GRUCell)"):
            policy_of(agent, "cleanrl")


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(PolicyNotSupportedError, match=r"Agent has no 'action_net'|has no 'mlp_ext"):
        policy_of(Agent(2, 1), "sb3")
    with pytest.raises(PolicyNotSupportedError, match=r"no layers 'actor_mean\|actor'.*\['a'\]"):
        policy_of({"a": np.ones(1)}, "cleanrl")


def test_a_map_that_is_none_is_refused() -> None:
    with pytest.raises(PolicyNotSupportedError, match="sequential, cleanrl, sb3, rllib"):
        named_map("tianshou")
    assert set(POLICY_MAPS) == {"sequential", "cleanrl", "sb3", "rllib"}


def test_what_holds_no_weights_is_refused() -> None:
    with pytest.raises(PolicyNotSupportedError, match=r"got list"):
        policy_of([1, 2])


def test_other_layers_become_a_graph_where_it_is_known_what_they_observe() -> None:
    torch.manual_seed(0)
    agent = Agent(3, 2)
    first = nn.Linear(3, 4)
    agent.actor_mean = nn.Sequential(first, nn.GELU(), nn.Linear(4, 2))
    seen = environment(ContinuousActionSpec(low=(-1.0,) * 2, high=(1.0,) * 2), size=3)
    policy = policy_of(agent, "cleanrl", environment=seen)
    assert policy.graph is not None
    assert (policy.weights, policy.action_mapping) == ((), "clip")
    observation = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    with torch.no_grad():
        expected = agent.actor_mean(torch.from_numpy(observation)).numpy()
    acted = policy.numpy(seen)
    np.testing.assert_allclose(acted.mode(observation), expected, rtol=1e-5, atol=1e-6)
    _, log_prob = acted.sample(observation, np.random.default_rng(0))
    assert log_prob.shape == (6,)
    nn.init.zeros_(first.weight)
    np.testing.assert_array_equal(policy.numpy(seen).mode(observation), acted.mode(observation))


def test_a_graph_joins_all_parts_and_sees_images() -> None:
    torch.manual_seed(0)
    module = nn.ModuleDict(
        {
            "body": nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten()),
            "head": nn.Linear(2 * 6 * 6, 4),
        }
    )
    seen = EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=(3, 8, 8), dtype="uint8"),
        action=DiscreteActionSpec(n=4),
        max_episode_steps=None,
        versions={},
    )
    policy = policy_of(module, PolicyMap(layers=("body", "head")), environment=seen)
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), np.uint8)
    with torch.no_grad():
        expected = module["head"](module["body"](torch.from_numpy(images).float())).numpy()
    np.testing.assert_allclose(policy.numpy(seen).outputs(images), expected, rtol=1e-4, atol=1e-3)
    assert len(policy.encoded(seen)) > 100


class Pair(nn.Module):
    """Gives two tensors where a layer would give one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


def test_a_module_that_makes_no_graph_is_refused() -> None:
    seen = environment(DiscreteActionSpec(n=2), size=2)
    module = nn.Sequential(OrderedDict(body=Pair(), head=nn.Linear(2, 2)))
    with pytest.raises(PolicyNotSupportedError, match="cannot be published: Sequential failed"):
        policy_of(module, environment=seen)
    with pytest.raises(PolicyNotSupportedError, match="3 outputs, and the environment"):
        policy_of(nn.Sequential(nn.Linear(2, 3), nn.GELU()), environment=seen).encoded(seen)


def test_a_graph_without_its_packages_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    seen = environment(DiscreteActionSpec(n=2), size=2)
    with pytest.raises(PolicyNotSupportedError, match=r"pip install 'nitro-rl\[export\]'"):
        policy_of(nn.Sequential(nn.Linear(2, 2), nn.GELU()), environment=seen)
