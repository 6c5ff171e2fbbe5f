"""sb3-contrib's RecurrentPPO, then episodes with it; runs in an interpreter that has it.

    python sb3_contrib_recurrent.py ENV STEPS SEED MODULE EPISODES FIRST_SEED

Rounds, environments, minibatches, step size and recurrent units are those of `benchmarks.memory`;
all else is the library's default: an LSTM each for policy and value, whose outputs go through two
layers of 64. MODULE is a file that registers ENV. Writes one line of JSON to standard output.
"""

import importlib.util
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env

ENVS, ROUND, MINIBATCH, UNITS, LEARNING_RATE = 8, 2048, 256, 64, 1e-3


def played(model: Any, env: Any, *, seed: int) -> float:
    """Return the return of one episode with the most likely action at every step."""
    observation, _ = env.reset(seed=seed)
    total, over, state, begins = 0.0, False, None, True
    while not over:
        action, state = model.predict(
            observation, state=state, episode_start=np.array([begins]), deterministic=True
        )
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over, begins = terminated or truncated, False
    return total


def main() -> None:
    """Train, play and write the returns."""
    env_id, steps, seed, module, episodes, first_seed = sys.argv[1:]
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location(Path(module).stem, module)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{module} is no Python file")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    model = RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env(env_id, n_envs=ENVS, seed=int(seed)),
        n_steps=ROUND // ENVS,
        batch_size=MINIBATCH,
        learning_rate=lambda left: LEARNING_RATE * left,
        policy_kwargs={"lstm_hidden_size": UNITS},
        seed=int(seed),
        device="cpu",
    )
    start = time.process_time()
    model.learn(total_timesteps=int(steps))
    cpu_s = time.process_time() - start
    env = gymnasium.make(env_id)
    seeds = range(int(first_seed), int(first_seed) + int(episodes))
    answer = {
        "returns": [played(model, env, seed=each) for each in seeds],
        "env_steps": int(model.num_timesteps),
        "cpu_s": cpu_s,
        "about": {name: version(name) for name in ("sb3-contrib", "stable-baselines3", "torch")},
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
