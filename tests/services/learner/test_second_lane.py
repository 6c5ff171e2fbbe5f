"""The second lane: work that runs at the same time, errors that arrive, no thread that stays."""

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from services.learner import second_lane as module
from services.learner.actor_critic import SplitLoss
from services.learner.algorithms.ppo import Ppo
from services.learner.networks import build_network
from services.learner.second_lane import MIN_MULTIPLICATIONS, SecondLane, second_lane
from services.learner.second_lane import PATIENCE_S as LANES_PATIENCE_S
from shared.environment_spec import EnvironmentSpec
from shared.ppo_hyperparameters import STANDARD, PpoHyperparameters
from tests.services.learner.trajectories import CONTINUOUS, DISCRETE, make_trajectory

CPU = torch.device("cpu")
PATIENCE_S = 30.0
LARGE = PpoHyperparameters(hidden_sizes=(256, 256), num_epochs=2, minibatch_size=64)
LARGE_FREE = STANDARD.model_copy(
    update={"hidden_sizes": (256, 256), "num_epochs": 2, "minibatch_size": 64}
)


def nothing() -> None:
    """Be done at once."""


def failing() -> None:
    raise ValueError("lost")


def num_lanes() -> int:
    return sum(thread.name == "second-lane" for thread in threading.enumerate())


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: count)


def test_both_halves_run_at_the_same_time() -> None:
    here, there = threading.Event(), threading.Event()
    met: list[bool] = []

    def meet(own: threading.Event, other: threading.Event) -> None:
        own.set()
        met.append(other.wait(PATIENCE_S))

    with SecondLane() as lane:
        for _ in range(3):
            lane.both(lambda: meet(here, there), lambda: meet(there, here))
            here.clear()
            there.clear()
    assert met == [True] * 6


def test_the_thread_ends_with_the_context_even_after_an_error() -> None:
    with SecondLane():
        assert num_lanes() == 1
    with pytest.raises(ValueError, match="lost"), SecondLane() as lane:
        lane.both(failing, nothing)
    assert num_lanes() == 0


def test_an_error_of_either_half_arrives_when_both_are_done() -> None:
    done: list[str] = []
    with SecondLane() as lane:
        with pytest.raises(ValueError, match="lost"):
            lane.both(lambda: done.append("here"), failing)
        with pytest.raises(ValueError, match="lost"):
            lane.both(failing, lambda: done.append("there"))
        lane.both(lambda: done.append("goes"), lambda: done.append("on"))
    assert done[:2] == ["here", "there"]
    assert sorted(done[2:]) == ["goes", "on"]


def test_there_is_one_only_for_large_work_of_one_thread_beside_an_idle_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores(monkeypatch, 2)
    for work, expected in ((MIN_MULTIPLICATIONS, True), (MIN_MULTIPLICATIONS - 1, False)):
        with second_lane(work, CPU) as lane:
            assert (lane is not None) is expected
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with second_lane(MIN_MULTIPLICATIONS, CPU) as lane:
        assert lane is None
    monkeypatch.undo()
    cores(monkeypatch, 1)
    with second_lane(MIN_MULTIPLICATIONS, CPU) as lane:
        assert lane is None


@pytest.mark.parametrize(
    ("environment", "hyperparameters"),
    [
        (CONTINUOUS, LARGE),
        (CONTINUOUS, LARGE_FREE),
        (DISCRETE, LARGE),
        # Small products, and a second lane all the same: fewer samples than a minibatch may have.
        (CONTINUOUS, STANDARD.model_copy(update={"minibatch_size": 4096})),
        (DISCRETE, PpoHyperparameters(hidden_sizes=(64,) * 6, num_epochs=2, minibatch_size=240)),
    ],
)
def test_an_update_has_the_same_bits_on_one_core_and_on_two(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for count in (1, 2):
        cores(monkeypatch, count)
        ppo = Ppo(environment, hyperparameters, seed=3)
        work = ppo.network.separate_multiplications * hyperparameters.minibatch_size
        with second_lane(work, CPU) as lane:
            assert (lane is None) is (count == 1)
        trajectory = make_trajectory(environment, ppo.network, actor_index=0, num_steps=200)
        stats = ppo.update([trajectory]).stats
        arrays, scalars = ppo.state()
        found.append((stats, scalars, {name: a.tobytes() for name, a in arrays.items()}))
    assert found[0] == found[1]


def test_a_lane_keeps_numpys_error_settings_and_wakes_after_a_pause() -> None:
    seen: list[dict[str, object]] = []
    with np.errstate(all="ignore"), SecondLane() as lane:
        lane.both(nothing, lambda: seen.append(dict(np.geterr())))
        threading.Event().wait(5 * LANES_PATIENCE_S)  # nobody sets it: by then the lane sleeps
        lane.both(nothing, lambda: seen.append(dict(np.geterr())))
    assert seen == [dict.fromkeys(np.geterr(), "ignore")] * 2


class Squares:
    """Half the sum of squares of everything, as a loss."""

    def policy_slope(self, outputs: Tensor) -> Tensor:
        return outputs.clone()

    def value_slope(self, value: Tensor) -> Tensor:
        return value.clone()


@pytest.mark.parametrize("hyperparameters", [LARGE, LARGE_FREE])
def test_a_networks_gradient_in_two_lanes_agrees_with_autograd(
    hyperparameters: PpoHyperparameters,
) -> None:
    network = build_network(CONTINUOUS, hyperparameters, seed=1)
    observation = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    named = {name: p.detach().clone().requires_grad_() for name, p in network.named_parameters()}

    def through(part: str) -> Tensor:
        x = observation
        for i in range(3):
            x = torch.tanh(x) if i else x
            x = torch.nn.functional.linear(
                x, named[f"{part}.{i}.weight"], named[f"{part}.{i}.bias"]
            )
        return x

    total = 0.5 * (through("policy").square().sum() + through("value").square().sum())
    if "log_std" in named:
        total = total + 0.5 * len(observation) * named["log_std"].square().sum()
    expected = torch.autograd.grad(total, [*named.values()])
    loss: SplitLoss[Tensor] = Squares()
    gradient = network.new_gradient()
    with SecondLane() as lane:
        network.differentiate(observation, loss, gradient=gradient, lane=lane)
    for view, derivative in zip(network.views_of(gradient.flat).values(), expected, strict=True):
        torch.testing.assert_close(view, derivative, rtol=1e-4, atol=1e-5)
