"""Networks of one's own: learned by autograd, published as graphs, refused with what is missing."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.ppo import Ppo
from learning.detectors.hessian import HessianDetector
from learning.networks.building import build_network, policy_payload
from learning.networks.own_network import MAKERS, OwnActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters import impact as impact_hyperparameters
from shared.hyperparameters import impala as impala_hyperparameters
from shared.hyperparameters.ppo import STANDARD_IMAGES, PpoHyperparameters
from shared.policy.network_metadata import GRAPH
from shared.policy.numpy_policy import load_policy
from shared.policy.spec import PolicySpec
from tests.learning.algorithms.test_gradient_learner import SPEC, trajectory
from tests.learning.networks.test_mlp_network import FixedGradients

BOX = ContinuousActionSpec(low=(-1.0,) * 2, high=(1.0,) * 2)
CHOICE = DiscreteActionSpec(n=3)


def environment(action: ActionSpec, shape: tuple[int, ...] = (5,)) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=shape, dtype="float32" if len(shape) < 3 else "uint8"),
        action=action,
        max_episode_steps=None,
        versions={},
    )


class Shared(nn.Module):
    """Both parts share a layer, and are of layers that NumPy has not."""

    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__()
        size = int(np.prod(its.observation.shape))
        trunk = nn.Sequential(nn.Flatten(), nn.Linear(size, 8), nn.LayerNorm(8), nn.GELU())
        outputs = its.action.n if isinstance(its.action, DiscreteActionSpec) else 2
        self.actor = nn.Sequential(trunk, nn.Linear(8, outputs))
        self.critic = nn.Sequential(trunk, nn.Dropout(0.5), nn.Linear(8, 1))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAKERS, "own/nets.Shared", Shared)


RULE = PpoHyperparameters(network="own/nets.Shared", log_std="free", minibatch_size=16)


@pytest.mark.parametrize(
    ("action", "shape"), [(BOX, (5,)), (CHOICE, (5,)), (CHOICE, (3, 6, 6))], ids=str
)
def test_the_gradient_is_autograds(action: ActionSpec, shape: tuple[int, ...]) -> None:
    network = build_network(environment(action, shape), RULE, seed=0)
    assert isinstance(network, OwnActorCritic)
    seen = torch.rand(4, *shape)
    seen = (seen * 255).to(torch.uint8) if len(shape) == 3 else seen
    with torch.no_grad():
        outputs, values = network.policy_outputs(seen), network.values(seen)
        d_outputs, d_values = torch.randn_like(outputs), torch.randn_like(values)
        gradient = network.new_gradient()
        network.differentiate(seen, FixedGradients(d_outputs, d_values), gradient=gradient)
    network.requires_grad_(True)
    found = network.own.get_submodule("actor")(seen.float())
    valued = network.own.get_submodule("critic")(seen.float()).squeeze(1)
    width = found.shape[1]
    total = (found * d_outputs[:, :width]).sum() + (valued * d_values).sum()
    expected = torch.autograd.grad(total, [*network.own.parameters()])
    views = network.views_of(gradient.flat)
    if network.log_std is not None:
        torch.testing.assert_close(views.pop("log_std"), d_outputs[:, width:].sum(0))
    for derivative, view in zip(expected, views.values(), strict=True):
        torch.testing.assert_close(view, derivative)


@pytest.mark.parametrize("action", [BOX, CHOICE], ids=["box", "choice"])
def test_actors_run_what_is_learned(action: ActionSpec) -> None:
    its = environment(action)
    network = build_network(its, RULE, seed=0)
    arrays, metadata = policy_payload(network)
    policy = load_policy(arrays, metadata)
    assert policy.spec.head == PolicySpec.of(its, RULE).head
    assert PolicySpec.of(its, RULE).observation_shape == policy.observation_shape
    seen = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    width = policy.network.output_size
    expected = network.policy_outputs(torch.from_numpy(seen))[:, :width].numpy()
    np.testing.assert_allclose(policy.outputs(seen), expected, rtol=1e-5, atol=1e-6)


class DrawnElsewhere(Shared):
    """Draws weights from all global generators."""

    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__(its)
        for draw in (random.random, np.random.random):  # noqa: NPY002 - that is the case
            nn.init.constant_(self.actor.get_submodule("1").get_parameter("bias"), draw())


def test_equal_seeds_make_equal_networks_and_leave_global_generators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MAKERS, "own/nets.Shared", DrawnElsewhere)
    state, python = torch.random.get_rng_state(), random.getstate()
    numpys: Any = np.random.get_state()  # noqa: NPY002 - as above
    first, again, other = (
        build_network(environment(BOX), RULE, seed=seed).flat for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert random.getstate() == python
    now: Any = np.random.get_state()  # noqa: NPY002 - as above
    np.testing.assert_array_equal(now[1], numpys[1])


SMALL = {"num_epochs": 1, "minibatch_size": 8, "network": "own/nets.Shared"}
BATCH = {**SMALL, "train_batch_size": 16}


def ppo() -> Algorithm:
    return Ppo(SPEC, STANDARD_IMAGES.model_copy(update=SMALL), seed=0)


def impact() -> Algorithm:
    return Impact(SPEC, impact_hyperparameters.STANDARD.model_copy(update=BATCH), seed=0)


def impala() -> Algorithm:
    return Impala(SPEC, impala_hyperparameters.STANDARD.model_copy(update=BATCH), seed=0)


@pytest.mark.parametrize("build", [ppo, impact, impala])
def test_updates_repeat_and_resume_bit_for_bit(build: Callable[[], Algorithm]) -> None:
    rounds = [[trajectory(2 * k), trajectory(2 * k + 1)] for k in range(2)]
    straight, resumed = build(), build()
    before = straight.policy_payload()[0]
    learn_round(straight, rounds[0])
    assert not np.array_equal(straight.policy_payload()[0][GRAPH], before[GRAPH])
    resumed.load_state(*straight.state())
    for algorithm in (straight, resumed):
        learn_round(algorithm, rounds[1])
    end, other = (algorithm.policy_payload()[0][GRAPH] for algorithm in (straight, resumed))
    np.testing.assert_array_equal(end, other)
    samples = straight.samples()
    assert samples is not None
    assert straight.network is not None
    found = HessianDetector(DetectorRule(num_samples=8, max_matvecs=8)).measure(
        straight.network, samples
    )
    assert found is not None
    assert found.lambda_max > found.lambda_min


def test_weights_that_grow_in_training_end_no_job() -> None:
    """A graph is compared with its module before training alone."""
    network = build_network(environment(BOX), RULE, seed=0)
    before = network.arrays()[GRAPH]
    network.flat.mul_(1e30)
    after = network.arrays()[GRAPH]
    assert before.tobytes() != after.tobytes()


class NoCritic(nn.Module):
    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__()
        self.actor: nn.Module = nn.Linear(5, 2)


class Wide(NoCritic):
    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__(its)
        self.actor = nn.Linear(5, 4)
        self.critic: nn.Module = nn.Linear(5, 1)


class Heavy(Wide):
    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__(its)
        self.actor = nn.Sequential(nn.Linear(5, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 2))


class Normed(Wide):
    def __init__(self, its: EnvironmentSpec) -> None:
        super().__init__(its)
        self.critic = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1))


@pytest.mark.parametrize(
    ("maker", "told"),
    [
        (NoCritic, "has no submodule 'critic'"),
        (Wide, r"the actor gives \(2, 4\).* expected \(2, 2\)"),
        (Normed, "BatchNorm1d at critic.0"),
        (Heavy, "Sequential takes 64.1 MB as a policy, actors load 64 MB"),
        (lambda its: 5, "makes no torch module"),
    ],
)
def test_what_cannot_be_learned_is_refused(
    maker: Callable[[EnvironmentSpec], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAKERS, "own/nets.Shared", maker)
    with pytest.raises(ValueError, match=told):
        build_network(environment(BOX), RULE, seed=0)


def test_an_unknown_name_is_never_imported() -> None:
    rule = RULE.model_copy(update={"network": "own/os.system"})
    with pytest.raises(ValueError, match="'own/os.system' is not known to this learner"):
        build_network(environment(BOX), rule, seed=0)
