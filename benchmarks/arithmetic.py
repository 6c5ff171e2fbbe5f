"""How much arithmetic an update is, and how much of it a core can do: the bound on any learner."""

from functools import partial

import torch

from benchmarks.measurement import Effort, seconds
from services.learner import gemm
from services.learner.networks import build_network
from shared.environment_spec import EnvironmentSpec
from shared.ppo_hyperparameters import PpoHyperparameters

_SIZE = 1024
"""Rows and columns of the product that shows the peak."""


def flops_per_step(environment: EnvironmentSpec, hyperparameters: PpoHyperparameters) -> int:
    """Return the floating point operations PPO's gradient steps spend on one environment step.

    Six per weight of either network and pass over the samples: a multiplication and an addition on
    the way forward, and both again for the weight's own derivative and for that of its input. The
    input of a first layer needs none; what is not a matrix product is left out.
    """
    network = build_network(environment, hyperparameters, seed=0)
    weights = {n: p.numel() for n, p in network.named_parameters() if n.endswith("weight")}
    first = sum(count for name, count in weights.items() if name.split(".")[1] == "0")
    return (6 * sum(weights.values()) - 2 * first) * hyperparameters.num_epochs


def core_peak(effort: Effort) -> float:
    """Return the most float32 operations per second seen of one core, in large matrix products.

    By torch's own library and by the one that updates use: neither is the faster on every machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.ones(_SIZE, _SIZE), torch.ones(_SIZE, _SIZE)
        best = min(
            seconds(partial(product, a, b))
            for product in (torch.mm, gemm.matmul)
            for _ in range(effort.of(30, quick=3))
        )
    finally:
        torch.set_num_threads(threads)
    return 2.0 * _SIZE**3 / best
