"""MSRL's PPO on one environment, with its own environments or with Nitro's actors.

python -m experiments.frameworks.msrl_run < TASK

Both learn without the tanh on means, which Nitro's actors do not have.
"""

import sys
from contextlib import ExitStack
from typing import Any

import gymnasium
import mindspore
import numpy as np
from mindspore import Tensor
from mindspore_rl.algorithm.ppo import config
from mindspore_rl.algorithm.ppo.ppo_trainer import PPOTrainer
from mindspore_rl.core import MSRL
from mindspore_rl.core.uniform_replay_buffer import UniformReplayBuffer
from mindspore_rl.environment import GymEnvironment
from mindspore_rl.environment.pyfunc_wrapper import PyFuncWrapper
from mindspore_rl.environment.sync_parallel_wrapper import SyncParallelWrapper

from examples.integrations.msrl_ppo import LinearMeansPolicy, NitroPPOTrainer, algorithm
from experiments.frameworks.telling import Task, tell
from nitro.pool.actor_pool import ActorPool


class Msrl(MSRL):  # type: ignore[misc] # the library has no types
    """MSRL as it was made, on MindSpore 2.7, whose cells have a method called `buffers`."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a replay buffer as an attribute of Python's."""
        if name == "buffers":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


class Agent:
    """MSRL's PPO in training."""

    def __init__(self, task: Task, pool: ActorPool | None) -> None:
        self._samples = task.samples
        self._pool = pool
        params = {**config.trainer_params, "duration": task.fragment}
        settings = own_algorithm(task) if pool is None else algorithm(pool)
        settings["learner"]["params"]["iter_times"] = task.epochs
        msrl = Msrl(settings)
        self._trainer = (
            PPOTrainer(msrl, params) if pool is None else NitroPPOTrainer(msrl, params, pool)
        )
        self._net = msrl.learner.actor_net
        self._done = 0

    def learn(self, steps: int) -> int:
        """Train on."""
        goal = self._done + steps
        while self._done < goal:
            self._trainer.train_one_episode()
            self._done += self._samples
        return self._done

    def act(self, observation: Any) -> Any:
        """Return the most likely action."""
        means, _ = self._net(Tensor(observation[None]))
        return np.clip(means.asnumpy()[0], -1.0, 1.0)

    def cost_usd(self) -> float:
        """Return what the actors have cost."""
        return 0.0 if self._pool is None else self._pool.cost_usd


def own_algorithm(task: Task) -> dict[str, Any]:
    """Return MSRL's configuration with its own environments, as its `PPOSession` makes it."""
    env = gymnasium.make(task.env_id)
    (observation,), (action,) = env.observation_space.shape or (), env.action_space.shape or ()
    env.close()

    def environment(number: int) -> dict[str, Any]:
        return {
            "number": number,
            "num_parallel": number,
            "type": GymEnvironment,
            "wrappers": [PyFuncWrapper, SyncParallelWrapper],
            "params": {"GymEnvironment": {"name": task.env_id}},
        }

    n, sizes = task.num_actors, (observation, action, 1, observation, action, action)
    buffer = {
        "number": 1,
        "type": UniformReplayBuffer,
        "capacity": task.fragment,
        "data_shape": [(n, size) for size in sizes],
        "data_type": [mindspore.float32] * len(sizes),
    }
    made = config.algorithm_config
    return {
        **made,
        "collect_environment": environment(n),
        "eval_environment": environment(1),
        "policy_and_network": {**made["policy_and_network"], "type": LinearMeansPolicy},
        "replay_buffer": buffer,
    }


def main() -> None:
    """Train as standard input says."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    task = Task.read(sys.stdin.buffer.read())
    mindspore.set_seed(task.seed)
    with ExitStack() as leaving:
        pool = None
        if task.sampler == "nitro":
            whole = {**task.pool, "horizon": "fragment"}  # a batch of MSRL's is of whole episodes
            pool = leaving.enter_context(ActorPool(task.env_id, **whole))
        tell(task, Agent(task, pool))


if __name__ == "__main__":
    main()
