"""The bound on a learner: operations counted by hand, and a peak that a product can reach."""

import torch

from benchmarks.arithmetic import core_peak, flops_per_step
from benchmarks.measurement import Effort
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.learning.trajectories import CONTINUOUS, DISCRETE


def test_operations_are_six_per_weight_of_both_networks_and_pass() -> None:
    """5 numbers in, layers of 8 and 7, 4 outputs (2 means, 2 deviations) and a value."""
    settings = PpoHyperparameters(hidden_sizes=(8, 7), num_epochs=3)
    first, policy, value = 5 * 8, 8 * 7 + 7 * 4, 8 * 7 + 7
    assert flops_per_step(CONTINUOUS, settings) == (2 * 4 * first + 6 * (policy + value)) * 3
    first, policy, value = 4 * 8, 8 * 7 + 7 * 3, 8 * 7 + 7
    assert flops_per_step(DISCRETE, settings) == (2 * 4 * first + 6 * (policy + value)) * 3


def test_measuring_the_peak_leaves_the_threads_as_they_are() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert core_peak(Effort(quick=True)) > 1e7
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
