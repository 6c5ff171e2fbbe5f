"""Sample Factory's asynchronous PPO, measured on request; runs in an interpreter of its own.

    python sample_factory_peer.py ENV STEPS

The first line on standard output gives versions and settings; each line read from standard input is
answered with one measurement: a training of at least STEPS environment steps by fresh processes,
counted from the first update to the last, so that neither the start nor the end of processes
counts. The settings are those of the library's own MuJoCo example, but for one pass over each batch
(as IMPALA makes) and as many workers as there are cores.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from typing import Any

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

SETTINGS: dict[str, object] = {
    "batched_sampling": False,
    "num_workers": os.cpu_count(),
    "num_envs_per_worker": 8,
    "worker_num_splits": 2,
    "encoder_mlp_layers": [64, 64],
    "nonlinearity": "tanh",
    "env_frameskip": 1,
    "batch_size": 1024,
    "num_batches_per_epoch": 4,
    "num_epochs": 1,
    "rollout": 64,
    "recurrence": 1,
    "use_rnn": False,
    "adaptive_stddev": False,
    "policy_initialization": "torch_default",
    "kl_loss_coeff": 0.1,
    "ppo_clip_ratio": 0.2,
    "value_loss_coeff": 1.3,
    "exploration_loss_coeff": 0.0,
    "max_grad_norm": 3.5,
    "learning_rate": 0.00295,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "shuffle_minibatches": False,
    "normalize_input": True,
    "normalize_returns": True,
    "value_bootstrap": True,
    "with_vtrace": False,
    "async_rl": True,
    "serial_mode": False,
    "device": "cpu",
    "seed": 0,
    "save_every_sec": 1_000_000,
    "restart_behavior": "overwrite",
    "log_to_file": False,
}


def make_environment(name: str, _cfg: Any, _env_config: Any, render_mode: str | None = None) -> Any:
    """Return the plain Gymnasium environment."""
    return gymnasium.make(name, render_mode=render_mode)


class UpdateClock(AlgoObserver):  # type: ignore[misc]
    """Notes when the learner had used how many steps."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, int]] = []

    def on_training_step(self, runner: Any, _iteration: int) -> None:
        """Note one update."""
        self.noted.append((time.perf_counter(), runner.total_env_steps_since_resume))

    @property
    def timing(self) -> dict[str, float]:
        """Steps and seconds from the first update to the last."""
        used = [(at, steps) for at, steps in self.noted if steps > 0]
        if len(used) < 2:
            raise RuntimeError(f"only {len(used)} updates were made: train for more steps")
        (start, before), (end, after) = used[0], used[-1]
        return {"steps": after - before, "seconds": end - start}


def train(env_id: str, steps: int, folder: str) -> dict[str, float]:
    """Train with fresh processes; return the steps and seconds that count."""
    arguments = [
        "--algo=APPO",
        f"--env={env_id}",
        "--experiment=benchmark",
        f"--train_dir={folder}",
        f"--train_for_env_steps={steps}",
    ]
    parser, _ = parse_sf_args(argv=arguments)
    parser.set_defaults(**SETTINGS)
    cfg, runner = make_runner(parse_full_cfg(parser, argv=arguments))
    clock = UpdateClock()
    runner.register_observer(clock)
    runner.init()
    runner.run()
    return clock.timing


def main() -> None:
    """Answer every line of standard input with one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env_id")
    parser.add_argument("steps", type=int)
    options = parser.parse_args()
    # The library writes its log to standard output, where only answers belong.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    register_env(options.env_id, make_environment)
    names = ("sample-factory", "torch", "gymnasium", "mujoco", "numpy")
    about = {name: version(name) for name in names}
    answer(answers, {**about, "workers": SETTINGS["num_workers"]})
    for _ in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            answer(answers, train(options.env_id, options.steps, folder))


def answer(answers: Any, message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
