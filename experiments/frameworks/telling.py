"""Messages of a framework's script, one line of JSON each, on standard output.

    {"env_steps": 2048, "returns": [31.0, 35.5], "cpu_s": 4.1, "cost_usd": 0.002}

The script prints such a line for every evaluation. Libraries that print do so on standard error.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np

from shared.contracts.message import Count, Message, PositiveInt

_NO_LIMIT_USD = 1e6
"""A budget that never cuts in."""


Framework = Literal["stable_baselines3", "rllib", "msrl"]
Sampler = Literal["own", "nitro"]


class FrameworkTask(Message):
    """One run."""

    framework: Framework
    env_id: str
    seed: Count
    sampler: Sampler
    steps: PositiveInt
    num_actors: PositiveInt
    """Actors, or environments of the framework's own sampler."""
    fragment: PositiveInt
    """Steps of each between two updates."""
    evaluate_every_steps: PositiveInt
    episodes: PositiveInt
    """Of an evaluation."""
    minibatch: PositiveInt
    epochs: PositiveInt


class Task(FrameworkTask):
    """The orders for one script, as JSON on standard input."""

    api_url: str | None = None
    token: str | None = None

    @property
    def samples(self) -> int:
        """Steps of one update."""
        return self.num_actors * self.fragment

    @property
    def pool(self) -> dict[str, Any]:
        """Keyword arguments of the `ActorPool`, but for the environment."""
        return {
            "fragment": self.fragment,
            "actors": self.num_actors,
            "budget_usd": _NO_LIMIT_USD,
            "seed": self.seed,
            "api_url": self.api_url,
            "token": self.token,
        }


class Trained(Protocol):
    """An agent in training."""

    def learn(self, steps: int) -> int:
        """Train for so many steps or a few more; return how many there have been in all."""

    def act(self, observation: Any) -> Any:
        """Return the deterministic action in one observation, as the environment takes it."""

    def cost_usd(self) -> float:
        """Return what the actors have cost so far."""


def tell(task: Task, trained: Trained) -> None:
    """Train an agent to the end, and print a line for each evaluation, before, between and after.

    The processor's time counts training alone: neither libraries being loaded nor evaluations.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    done, trained_s = 0, 0.0
    while True:
        line = {
            "env_steps": done,
            "returns": evaluate(task, trained.act),
            "cpu_s": trained_s,
            "cost_usd": trained.cost_usd(),
        }
        answers.write(json.dumps(line) + "\n")
        answers.flush()
        if done >= task.steps:
            return
        before_s = _processor_s()
        before = done
        done = trained.learn(min(task.evaluate_every_steps, task.steps - done))
        if done == before:
            raise RuntimeError(f"the training ended after {done} of {task.steps} steps")
        trained_s += _processor_s() - before_s


def evaluate(task: Task, act: Callable[[Any], Any]) -> Sequence[float]:
    """Return the returns of whole episodes, the same for every agent and every evaluation."""
    env = gymnasium.make(task.env_id)
    returns = []
    for episode in range(task.episodes):
        observation, _ = env.reset(seed=1_000_000 + 1000 * task.seed + episode)
        total, ended = 0.0, False
        while not ended:
            action = act(np.asarray(observation, np.float32))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    env.close()
    return returns


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
