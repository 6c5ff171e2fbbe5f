"""Steps replayed from a recording against steps taken one by one.

What records here simply does the work again, on the CPU: that a CUDA graph does is the driver's
promise, and `python -m benchmarks gpu` compares whole updates on both devices.
"""

import math

import pytest
import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from learning.updates.cuda_graphs import Recorder
from learning.updates.gradient import Gradient
from learning.updates.gradient_steps import StepsTaken, take_steps
from learning.updates.optimiser import AdamRule, FlatAdam
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.trajectories import CONTINUOUS
from tests.learning.updates.replaying import Again

OBSERVATIONS = 4
SIZES = (3, 3, 2, 3, 2, 2)


def new_adam(network: ActorCritic, *, epsilon: float, norm_max: float) -> FlatAdam:
    rule = AdamRule(learning_rate=0.01, epsilon=epsilon, gradient_norm_max=norm_max)
    return FlatAdam(network.flat, rule=rule)


def minibatch(size: int, generator: torch.Generator, *, spoilt: bool) -> Columns[Tensor]:
    value = torch.randn(size, generator=generator)
    return Columns(
        observation=torch.randn(size, OBSERVATIONS, generator=generator),
        action=torch.randint(2, (size,), generator=generator),
        advantage=value * math.nan if spoilt else value,
        value_target=value,
        value=value,
        log_prob=value,
        behaviour_log_prob=value,
        outputs=torch.randn(size, 2, generator=generator),
    )


class Pulls:
    """Gradients of all that is in a minibatch and of the parameters themselves."""

    def __init__(self, parameters: Tensor) -> None:
        self._parameters = parameters

    def gradient(self, samples: Columns[Tensor]) -> Gradient:
        pull = samples.observation.sum() + samples.action.sum() + samples.outputs.sum()
        mean = samples.advantage.mean()
        return Gradient(
            flat=self._parameters * 0.1 + pull * mean,
            stats=torch.stack((pull, mean)),
        )


def taken(recorder: Recorder | None, *, spoilt: set[int]) -> tuple[StepsTaken, Tensor, int]:
    generator = torch.Generator().manual_seed(4)
    network = build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6,)), seed=3)
    adam = new_adam(network, epsilon=1e-5, norm_max=0.5)

    minibatches = [
        minibatch(size, generator, spoilt=index in spoilt) for index, size in enumerate(SIZES)
    ]
    steps = take_steps(minibatches, adam, Pulls(network.flat), recorder=recorder)
    return steps, network.flat.clone(), adam.steps


@pytest.mark.parametrize("spoilt", [set(), {0}, {3, 5}, set(range(len(SIZES)))])
def test_replayed_steps_come_to_the_same(spoilt: set[int]) -> None:
    one_by_one, parameters, count = taken(None, spoilt=spoilt)
    again = Again()
    replayed, their_parameters, their_count = taken(again, spoilt=spoilt)
    assert again.recorded == len(set(SIZES))
    assert replayed.means == pytest.approx(one_by_one.means)
    assert (replayed.num_taken, replayed.num_skipped) == (len(SIZES) - len(spoilt), len(spoilt))
    assert (one_by_one.num_taken, one_by_one.num_skipped) == (
        replayed.num_taken,
        replayed.num_skipped,
    )
    assert their_count == count == replayed.num_taken
    torch.testing.assert_close(their_parameters, parameters)


def test_no_minibatch_is_no_step() -> None:
    network = build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=(6,)), seed=3)
    adam = new_adam(network, epsilon=1e-5, norm_max=0.5)
    nothing = StepsTaken(means=(), num_taken=0, num_skipped=0)
    for recorder in (None, Again()):
        assert take_steps([], adam, Pulls(network.flat), recorder=recorder) == nothing
