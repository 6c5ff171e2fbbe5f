"""How much arithmetic an update is, and how much of it a core can do: the bound on any learner."""

from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.measurement import Effort, seconds
from learning.networks.building import build_network
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters

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

    By torch's library and by NumPy's: neither is the faster on every machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.ones(_SIZE, _SIZE), torch.ones(_SIZE, _SIZE)
        products = (partial(torch.mm, a, b), partial(np.matmul, a.numpy(), b.numpy()))
        with threadpool_limits(1, user_api="blas"):
            best = min(
                seconds(product) for product in products for _ in range(effort.of(30, quick=3))
            )
    finally:
        torch.set_num_threads(threads)
    return 2.0 * _SIZE**3 / best
