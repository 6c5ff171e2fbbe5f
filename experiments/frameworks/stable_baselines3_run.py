"""Stable-Baselines3's PPO on one environment, with its own sampler or with Nitro's actors.

python -m experiments.frameworks.stable_baselines3_run < TASK
"""

import json
import sys
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from experiments.frameworks.telling import Task, tell


class Agent:
    """The library's PPO in training."""

    def __init__(self, task: Task) -> None:
        self._model = model(task)

    def learn(self, steps: int) -> int:
        """Train on."""
        self._model.learn(steps, reset_num_timesteps=False)
        return int(self._model.num_timesteps)

    def act(self, observation: Any) -> Any:
        """Return the most likely action."""
        return self._model.predict(observation, deterministic=True)[0]

    def cost_usd(self) -> float:
        """Return what the actors have cost."""
        pool = getattr(self._model, "pool", None)
        return 0.0 if pool is None else float(pool.cost_usd)


def model(task: Task) -> Any:
    """Return the model: the library's defaults but for what the task says."""
    settings = {
        "n_steps": task.fragment,
        "batch_size": task.minibatch,
        "n_epochs": task.epochs,
        "seed": task.seed,
        "device": "cpu",
    }
    env = make_vec_env(task.env_id, n_envs=task.num_actors, seed=task.seed)
    return PPO("MlpPolicy", env, **settings)


def main() -> None:
    """Train as standard input says."""
    torch.set_num_threads(1)
    task = Task(**json.load(sys.stdin))
    tell(task, Agent(task))


if __name__ == "__main__":
    main()
