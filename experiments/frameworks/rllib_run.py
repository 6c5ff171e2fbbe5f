"""RLlib's PPO on one environment, with its own sampler or with Nitro's actors.

python -m experiments.frameworks.rllib_run < TASK
"""

import sys
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.spaces.space_utils import unsquash_action

from experiments.frameworks.telling import Task, tell
from nitro.integrations.rllib import NitroEnvRunner


class Agent:
    """RLlib's PPO in training."""

    def __init__(self, task: Task) -> None:
        self._algorithm = config(task).build_algo()
        self._space = self._algorithm.env_runner.get_spaces()["__env_single__"][1]
        self._done = 0

    def learn(self, steps: int) -> int:
        """Train on."""
        goal = self._done + steps
        while self._done < goal:
            result = self._algorithm.train()
            self._done = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        return self._done

    def act(self, observation: Any) -> Any:
        """Return the most likely action."""
        module = self._algorithm.env_runner.module
        with torch.no_grad():
            out = module.forward_inference({Columns.OBS: torch.as_tensor(observation)[None]})
        outputs = out[Columns.ACTION_DIST_INPUTS][0].numpy()
        if not hasattr(self._space, "low"):
            return int(np.argmax(outputs))
        return unsquash_action(outputs[: len(outputs) // 2], self._space)

    def cost_usd(self) -> float:
        """Return what the actors have cost."""
        pool = getattr(self._algorithm.env_runner, "pool", None)
        return 0.0 if pool is None else float(pool.cost_usd)


def config(task: Task) -> Any:
    """Return the algorithm's settings."""
    pool = {**task.pool, "measure_curvature": False}
    del pool["fragment"]  # RLlib says it
    actors: dict[str, Any] = {"env_runner_cls": NitroEnvRunner} if task.sampler == "nitro" else {}
    return (
        PPOConfig()
        .environment(task.env_id, env_config={"nitro": pool} if actors else {})
        .env_runners(
            **actors,
            num_env_runners=0,
            num_envs_per_env_runner=task.num_actors,
            rollout_fragment_length=task.fragment,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            lr=3e-4,
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            use_kl_loss=False,
            kl_coeff=0.0,
            entropy_coeff=0.0,
            vf_loss_coeff=0.25,
            vf_clip_param=1e6,  # it bounds the loss of a value; none is as large
            grad_clip=0.5,
            grad_clip_by="global_norm",
            train_batch_size_per_learner=task.samples,
            minibatch_size=task.minibatch,
            num_epochs=task.epochs,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .debugging(seed=task.seed, log_level="ERROR")
    )


def main() -> None:
    """Train as standard input says."""
    torch.set_num_threads(1)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    task = Task.read(sys.stdin.buffer.read())
    tell(task, Agent(task))


if __name__ == "__main__":
    main()
