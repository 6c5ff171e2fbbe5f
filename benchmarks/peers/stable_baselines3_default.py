"""An algorithm of Stable-Baselines3 or SB3-Contrib, then episodes with it, in its interpreter.

    python stable_baselines3_default.py ENV STEPS SEED --episodes 20 --first-seed 1000000

Every hyper-parameter that `--settings` does not give is the library's default: one environment,
PPO's rounds of 2,048 steps.
Writes one line of JSON to standard output: the returns of deterministic episodes with the policy of
the last update, seconds of training, and versions. Episode i is reset with seed FIRST_SEED + i.
Each `--module` is a file that is imported first, for environments that it registers.
"""

import argparse
import importlib.util
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium
import torch
from sb3_contrib import ARS, CrossQ
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import VecNormalize

NAMES = ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "numpy", "mujoco", "box2d")


ALGORITHMS: dict[str, tuple[Any, str]] = {
    "ppo": (PPO, "MlpPolicy"),
    "sac": (SAC, "MlpPolicy"),
    "crossq": (CrossQ, "MlpPolicy"),
    "ars": (ARS, "LinearPolicy"),
}
"""Each with its policy."""


def played(model: Any, env: Any, *, seed: int, normaliser: VecNormalize | None) -> float:
    """Return the return of one episode with the most likely action at every step."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        if normaliser is not None:
            observation = normaliser.normalize_obs(observation)
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total


def register(path: Path) -> None:
    """Import the file, so that what it registers is known."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"--module: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Train, play and write the returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env_id")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1_000_000)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="ppo")
    parser.add_argument("--settings", type=json.loads, default={}, help="its arguments, as JSON")
    parser.add_argument("--normalise", action="store_true", help="observations, by VecNormalize")
    parser.add_argument("--module", type=Path, action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)  # small networks gain nothing from more
    for module in options.module:
        register(module)
    algorithm, policy = ALGORITHMS[options.algorithm]
    model = algorithm(policy, options.env_id, seed=options.seed, device="cpu", **options.settings)
    normaliser = None
    if options.normalise:
        normaliser = VecNormalize(model.get_env(), norm_reward=False)
        model.set_env(normaliser)
    start = time.perf_counter()
    # PPO's steps are rounded up to whole rounds.
    model.learn(total_timesteps=options.steps)
    train_s = time.perf_counter() - start
    env = gymnasium.make(options.env_id)
    seeds = range(options.first_seed, options.first_seed + options.episodes)
    about = {}
    for name in NAMES:
        try:
            about[name] = version(name)
        except PackageNotFoundError:
            continue
    answer = {
        "returns": [played(model, env, seed=seed, normaliser=normaliser) for seed in seeds],
        "env_steps": int(model.num_timesteps),
        "train_s": train_s,
        "about": about,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
