"""A new network block and a new action distribution, by the registries alone.

The block is a gain and a shift of each value; the distribution is Laplace's. `docs/extending.md`
counts the lines of these two classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest
import torch
from torch.distributions import Laplace, kl_divergence

from learning.algorithms.algorithm import learn_round
from learning.algorithms.ppo import Ppo
from learning.networks.building import build_network, policy_payload
from learning.networks.distributions import distribution_of
from nitro.runs.onnx_graph import policy_graph
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.blocks import Block, Dense
from shared.policy.formulas import FormulaBlock, FormulaHead
from shared.policy.head import Head
from shared.policy.numpy_policy import load_policy, with_actions
from shared.policy.registry import HEADS, NETWORKS
from shared.policy.spec import PolicySpec
from shared.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain(FormulaBlock):
    size: int

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.size,)

    def values(self, xp: Any, weight: Any, bias: Any, x: Any) -> Any:
        return x * xp.exp(weight) + bias

    def nodes(self, add: Callable[..., str], weight: str, bias: str, x: str) -> str:
        return add("Add", add("Mul", x, add("Exp", weight)), bias)


def gained(observation_shape: tuple[int, ...], outputs: int) -> tuple[Block, ...]:
    (inputs,) = observation_shape
    return (
        Dense(inputs=inputs, outputs=16, activation="elu"),
        Gain(size=16),
        Dense(inputs=16, outputs=8, activation="tanh", layer_norm=True),
        Gain(size=8),
        Dense(inputs=8, outputs=outputs),
    )


class LaplaceHead(FormulaHead):
    def noise(self, rng: Any, shape: tuple[int, ...]) -> Any:
        return rng.laplace(size=shape).astype("float32")

    def sample(self, xp: Any, outputs: Any, noise: Any) -> Any:
        mean, log_scale = _halves(outputs)
        return mean + xp.exp(log_scale) * noise

    def log_prob(self, xp: Any, outputs: Any, action: Any) -> Any:
        mean, log_scale = _halves(outputs)
        return -(xp.abs(action - mean) * xp.exp(-log_scale) + log_scale + math.log(2)).sum(1)

    def entropy(self, xp: Any, outputs: Any) -> Any:
        return (_halves(outputs)[1] + 1 + math.log(2)).sum(1)

    def kl(self, xp: Any, old: Any, new: Any) -> Any:
        (old_mean, old_log_scale), (mean, log_scale) = _halves(old), _halves(new)
        distance, longer = xp.abs(old_mean - mean), log_scale - old_log_scale
        near = xp.exp(-longer - distance * xp.exp(-old_log_scale))
        return (near + distance * xp.exp(-log_scale) + longer - 1).sum(1)


def _halves(outputs: Any) -> Any:
    size = outputs.shape[-1] // 2
    return outputs[..., :size], outputs[..., size:]


class Rule(PpoHyperparameters):
    distribution: ClassVar[str] = "laplace"


ENVIRONMENT = EnvironmentSpec(
    env_id="Toy-v0",
    observation=ObservationSpec(shape=(5,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0, 0.0), high=(1.0, 3.0)),
    max_episode_steps=None,
    versions={},
)
RULE = Rule(network="gained", num_epochs=2, minibatch_size=16, learning_rate=1e-2)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "gained", gained)
    monkeypatch.setitem(HEADS, "laplace", LaplaceHead())


def test_formulas_are_torchs_laplace() -> None:
    torch.manual_seed(0)
    old, new, action = torch.randn(7, 4), torch.randn(7, 4, requires_grad=True), torch.randn(7, 2)
    ours = distribution_of(Head(distribution="laplace", log_std="state_dependent", size=2))
    its: Any = [Laplace(each[:, :2], each[:, 2:].exp()) for each in (old, new)]
    before, theirs = its
    of_each: Any = (theirs.log_prob(action), kl_divergence(before, theirs), theirs.entropy())
    expected = [each.sum(1) for each in of_each]
    with torch.inference_mode():  # as gradient steps run
        terms = ours.terms(old + 0, new + 0, action + 0)
        slopes = [terms.score, terms.kl_gradient(), ours.entropy_gradient(new + 0)]
    found = [terms.log_prob, terms.kl, terms.entropy]
    torch.testing.assert_close(found, [each.detach() for each in expected])
    for slope, each in zip(slopes, expected, strict=True):
        (theirs_slope,) = torch.autograd.grad(each.sum(), new, retain_graph=True)
        torch.testing.assert_close(slope, theirs_slope)


def trajectory(algorithm: Ppo, index: int) -> Trajectory:
    """A fragment whose reward is the first number of the action, less its square."""
    rng = np.random.default_rng(index)
    policy = load_policy(*algorithm.policy_payload())
    observation = rng.standard_normal((33, 2, 5)).astype(np.float32)
    action, log_prob = policy.sample(observation[:-1], rng)
    reward = action[..., 0] - np.square(action[..., 0])
    nothing = np.zeros((32, 2), bool)
    return Trajectory(
        job_id="job",
        round=0,
        actor_index=index,
        policy_version=0,
        observation=observation,
        final_observation=np.zeros((0, 5), np.float32),
        action=action,
        reward=reward.astype(np.float32),
        terminated=nothing | True,
        truncated=nothing,
        log_prob=log_prob,
        episode_returns=reward.astype(np.float32).ravel(),
        episode_lengths=np.ones(64, np.int32),
    )


def test_both_are_learned_acted_on_and_exported() -> None:
    algorithm = Ppo(ENVIRONMENT, RULE, seed=0)
    returns = []
    for index in range(12):
        found = trajectory(algorithm, index)
        returns.append(found.reward.mean())
        stats = learn_round(algorithm, [found]).stats
        assert stats["behaviour_log_prob_error"] < 1e-4
    assert np.mean(returns[-3:]) > np.mean(returns[:3]) + 0.5
    arrays, metadata = algorithm.policy_payload()
    spec = PolicySpec.read(metadata, {name: array.shape for name, array in arrays.items()})
    assert (spec.blocks, spec.head) == (gained((5,), 4), Head.of(ENVIRONMENT.action, RULE))
    assert np.abs(arrays["policy.1.weight"]).max() > 0
    policy = load_policy(arrays, with_actions(metadata, ENVIRONMENT.action))
    seen = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    outputs = algorithm.network.policy_outputs(torch.from_numpy(seen))
    np.testing.assert_allclose(policy.outputs(seen), outputs.numpy(), rtol=1e-5, atol=1e-5)
    graph = policy_graph(
        arrays, metadata, observation=ENVIRONMENT.observation, action=ENVIRONMENT.action
    )
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (acted,) = session.run(None, {"observation": seen})
    np.testing.assert_allclose(acted, policy.act(seen), rtol=1e-5, atol=1e-5)


def test_equal_seeds_make_equal_networks() -> None:
    first, again, other = (build_network(ENVIRONMENT, RULE, seed=seed).flat for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(policy_payload(build_network(ENVIRONMENT, RULE, seed=0))[0]) == {
        f"policy.{i}.{part}" for i in range(5) for part in ("weight", "bias")
    }
