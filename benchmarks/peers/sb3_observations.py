"""Stable-Baselines3's PPO, or sb3-contrib's MaskablePPO, then episodes with it.

    python sb3_observations.py ENV PEER STEPS SEED MODULE EPISODES FIRST_SEED SETTINGS

Runs in an interpreter that has the library. PEER is `sb3`, with `MultiInputPolicy` where
observations are a `Dict`, or `sb3-contrib`. SETTINGS is a JSON object: rounds, minibatches, passes
and step size are those of `benchmarks.observations`; all else is the library's default. MODULE is a
file, or the name of a package, that registers ENV. Writes one line of JSON to standard output.
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
from gymnasium.spaces import Box, Dict
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env


class Numbers(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Leaves out words, and makes numbers of images too small for the library's filters."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        spaces = {name: space for name, space in env.observation_space.items() if name != "mission"}
        for name, space in spaces.items():
            if isinstance(space, Box) and len(space.shape) == 3 and space.shape[0] < 36:
                spaces[name] = Box(0.0, 255.0, space.shape, np.float32)
        self.observation_space = Dict(spaces)
        self._kept = spaces

    def observation(self, observation: Any) -> Any:
        """Return the parts that are kept."""
        return {
            name: np.asarray(observation[name], space.dtype) for name, space in self._kept.items()
        }


def made(env_id: str) -> Any:
    """Return the environment as the library takes it."""
    env = gymnasium.make(env_id)
    return Numbers(env) if isinstance(env.observation_space, Dict) else env


def played(model: Any, env: Any, *, seed: int) -> float:
    """Return the return of one episode with the most likely action at every step."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        masks: dict[str, Any] = {}
        if isinstance(model, MaskablePPO):
            masks["action_masks"] = env.get_wrapper_attr("action_masks")()
        action, _ = model.predict(observation, deterministic=True, **masks)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total


def register(module: str) -> None:
    """Run a file or import a package that registers environments."""
    if not module.endswith(".py"):
        importlib.import_module(module)
        return
    spec = importlib.util.spec_from_file_location(Path(module).stem, module)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{module} is no Python file")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def main() -> None:
    """Train, play and write the returns."""
    env_id, peer, steps, seed, module, episodes, first_seed, given = sys.argv[1:]
    settings: dict[str, Any] = json.loads(given)
    torch.set_num_threads(1)
    register(module)
    envs = make_vec_env(lambda: made(env_id), n_envs=settings["envs"], seed=int(seed))
    kind = MaskablePPO if peer == "sb3-contrib" else PPO
    model = kind(
        "MultiInputPolicy" if isinstance(envs.observation_space, Dict) else "MlpPolicy",
        envs,
        n_steps=settings["round"] // settings["envs"],
        batch_size=settings["minibatch_size"],
        n_epochs=settings["num_epochs"],
        learning_rate=lambda left: settings["learning_rate"] * left,
        ent_coef=settings["entropy_coefficient"],
        seed=int(seed),
        device="cpu",
    )
    start = time.process_time()
    model.learn(total_timesteps=int(steps))
    cpu_s = time.process_time() - start
    env = made(env_id)
    seeds = range(int(first_seed), int(first_seed) + int(episodes))
    libraries = ["sb3-contrib", "stable-baselines3", "torch"]
    if module == "gymnasium_robotics":
        libraries += ["gymnasium-robotics", "mujoco"]
    answer = {
        "returns": [played(model, env, seed=each) for each in seeds],
        "env_steps": int(model.num_timesteps),
        "cpu_s": cpu_s,
        "about": {name: version(name) for name in libraries},
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
