"""Stable-Baselines3's PPO on one environment, with its own sampler or with Nitro's actors.

python -m experiments.frameworks.stable_baselines3_run < TASK
"""

import sys
from contextlib import ExitStack
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from experiments.frameworks.telling import Task, tell
from nitro.integrations.sb3 import NitroPPO
from nitro.pool.actor_pool import ActorPool


class Agent:
    """The library's PPO in training."""

    def __init__(self, task: Task, pool: ActorPool | None) -> None:
        self._pool = pool
        self._model = model(task, pool)

    def learn(self, steps: int) -> int:
        """Train on."""
        self._model.learn(steps, reset_num_timesteps=False)
        return int(self._model.num_timesteps)

    def act(self, observation: Any) -> Any:
        """Return the most likely action."""
        return self._model.predict(observation, deterministic=True)[0]

    def cost_usd(self) -> float:
        """Return what the actors have cost."""
        return 0.0 if self._pool is None else self._pool.cost_usd


def model(task: Task, pool: ActorPool | None) -> Any:
    """Return the model: the library's defaults but for what the task says."""
    settings: dict[str, Any] = {
        "n_steps": task.fragment,
        "batch_size": task.minibatch,
        "n_epochs": task.epochs,
        "seed": task.seed,
        "device": "cpu",
    }
    if pool is not None:
        return NitroPPO("MlpPolicy", pool=pool, measure_curvature=False, **settings)
    env = make_vec_env(task.env_id, n_envs=task.num_actors, seed=task.seed)
    return PPO("MlpPolicy", env, **settings)


def main() -> None:
    """Train as standard input says."""
    torch.set_num_threads(1)
    task = Task.read(sys.stdin.buffer.read())
    with ExitStack() as leaving:
        pool = None
        if task.sampler == "nitro":
            pool = leaving.enter_context(ActorPool(task.env_id, **task.pool))
        tell(task, Agent(task, pool))


if __name__ == "__main__":
    main()
