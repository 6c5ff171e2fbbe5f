"""Pools on the shared local system, and policies small enough to see through."""

from typing import Any

import torch
from torch import nn

from nitro.local.system import LocalSystem
from nitro.pool.actor_pool import ActorPool
from nitro.pool.batch import Batch

SMALL: dict[str, Any] = {
    "fragment": 32,
    "actors": (2, 4),
    "policy": "random",
    "budget_usd": 1.0,
    "seed": 7,
}


def pool_at(system: LocalSystem, env: str = "CartPole-v1", **changes: Any) -> ActorPool:
    """Return a pool of a few short fragments, on a system that runs."""
    said = {**SMALL, "api_url": system.api_url, "token": system.token, **changes}
    return ActorPool(env, **said)


def cartpole_net(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """Return a policy of CartPole, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), activation(), nn.Linear(16, 2))


class Agent(nn.Module):
    """A continuous agent as CleanRL writes it."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.critic = nn.Sequential(nn.Linear(observations, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor_mean = nn.Sequential(
            nn.Linear(observations, 16),
            nn.Tanh(),
            nn.Linear(16, 16),
            nn.Tanh(),
            nn.Linear(16, actions),
        )
        self.actor_logstd = nn.Parameter(torch.full((1, actions), -0.5))


def bill_of(batch: Batch, pool: ActorPool) -> float:
    """Collect until a batch's round has its bill, which comes when its launches have ended."""
    for _ in range(100):
        if batch.cost_usd is not None:
            return batch.cost_usd
        pool.collect(cartpole_net())
    raise AssertionError("a hundred rounds later the round has no bill")
