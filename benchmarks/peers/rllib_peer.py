"""RLlib's PPO, measured on request; runs in an interpreter of its own.

    python rllib_peer.py PRESET ENV NUM_ENVS UPDATES

The first line on standard output gives versions and settings; each line read from standard input is
answered with one measurement. Hyper-parameters are those of our PRESET: `paper`, which are RLlib's
own, or `standard`, as far as the library has them. It samples in its own process or in one process
per core, and learns with one thread or with one per core, whichever has just been faster.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One of our presets in the library's words."""

    samples_per_update: int
    training: dict[str, Any]
    model: dict[str, Any]
    sampling: dict[str, Any]
    differs: str
    """From ours, and in whose favour."""


SETTINGS = {
    "paper": Setting(
        samples_per_update=4096,  # 16 actors of 256 steps
        training={
            "lr": 5e-5,
            "lambda_": 1.0,
            "clip_param": 0.3,
            "kl_coeff": 0.2,
            "kl_target": 0.01,
            "vf_loss_coeff": 1.0,
            "minibatch_size": 128,
            "num_epochs": 30,
        },
        model={"fcnet_hiddens": [256, 256]},
        sampling={},
        differs="nothing",
    ),
    "standard": Setting(
        samples_per_update=2048,
        training={
            "lr": 3e-4,
            "lambda_": 0.95,
            "clip_param": 0.2,
            "use_kl_loss": False,
            "kl_coeff": 0.0,
            "vf_loss_coeff": 0.25,  # its value loss has no factor of one half
            "grad_clip": 0.5,
            "grad_clip_by": "global_norm",
            "minibatch_size": 64,
            "num_epochs": 10,
        },
        model={"fcnet_hiddens": [64, 64], "free_log_std": True},
        sampling={"env_to_module_connector": lambda *_environment: MeanStdFilter()},
        differs="MeanStdFilter for observations; rewards as they are, which ours scales; constant "
        "step size; bounds the value's error, not its step",
    ),
}


def build(setting: Setting, env_id: str, *, num_envs: int, num_processes: int) -> Any:
    """Return PPO with environments in this process (0) or spread over others."""
    config = (
        PPOConfig()
        .environment(env_id)
        .env_runners(
            num_env_runners=num_processes,
            num_envs_per_env_runner=num_envs // max(1, num_processes),
            **setting.sampling,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            gamma=0.99,
            entropy_coeff=0.0,
            vf_clip_param=10.0,
            train_batch_size_per_learner=setting.samples_per_update,
            **setting.training,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_activation="tanh", vf_share_layers=False, **setting.model
            )
        )
        .debugging(seed=0, log_level="ERROR")
    )
    return config.build_algo()


def seconds_of(algorithm: Any, updates: int) -> float:
    """Return how long some updates take."""
    start = time.perf_counter()
    for _ in range(updates):
        algorithm.train()
    return time.perf_counter() - start


def faster(setting: Setting, env_id: str, num_envs: int) -> tuple[Any, int]:
    """Return the algorithm with the faster way to sample, and its number of processes."""
    candidates = []
    for processes in sorted({0, os.cpu_count() or 1}):
        algorithm = build(setting, env_id, num_envs=num_envs, num_processes=processes)
        seconds_of(algorithm, 1)  # the first update is slower
        candidates.append((seconds_of(algorithm, 1), processes, algorithm))
    candidates.sort(key=lambda candidate: candidate[0])
    for _, _, slower in candidates[1:]:
        slower.stop()
    return candidates[0][2], candidates[0][1]


def use_faster_threads(algorithm: Any) -> int:
    """Have the learner use one thread or all, whichever is faster; return how many."""

    def with_threads(count: int) -> float:
        torch.set_num_threads(count)
        return seconds_of(algorithm, 1)

    best = min({1, torch.get_num_threads()}, key=with_threads)
    torch.set_num_threads(best)
    return best


def main() -> None:
    """Answer every line of standard input with one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=SETTINGS)
    parser.add_argument("env_id")
    parser.add_argument("num_envs", type=int)
    parser.add_argument("updates", type=int)
    options = parser.parse_args()
    # Libraries print to standard output, where only answers belong.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    ray.init(num_cpus=(os.cpu_count() or 1) + 1, include_dashboard=False, log_to_driver=False)
    setting = SETTINGS[options.preset]
    algorithm, processes = faster(setting, options.env_id, options.num_envs)
    threads = use_faster_threads(algorithm)
    names = ("ray", "torch", "gymnasium", "mujoco", "numpy")
    about = {name: version(name) for name in names}
    settings = {"sampling processes": processes, "threads": threads, "differs": setting.differs}
    answer(answers, {**about, **settings})
    steps = options.updates * setting.samples_per_update
    for _ in sys.stdin:
        answer(answers, {"steps": steps, "seconds": seconds_of(algorithm, options.updates)})


def answer(answers: Any, message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
