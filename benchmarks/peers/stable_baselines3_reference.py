"""A whole training run of Stable-Baselines3's PPO; runs in the peers' interpreter.

    python stable_baselines3_reference.py ENV STEPS SEED

Writes one line of JSON to standard output: the returns of the training episodes, in order, and
versions. Hyper-parameters are those of our preset `standard` for vectors, as far as the library has
them: its value loss has no factor of one half, hence half our coefficient, and takes the clipped
value alone where ours takes the worse of the two. A round is two environments of 1,024 steps, which
go on from round to round.
"""

import argparse
import json
import sys
from importlib.metadata import version
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

NUM_ENVS = 2
STEPS_PER_ENV = 1024


class EpisodeReturns(BaseCallback):  # type: ignore[misc] # untyped here
    """Keeps the raw return of every training episode."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.returns += map(float, ended)
        return True


def build(env_id: str, *, seed: int) -> Any:
    """Return the agent."""
    env = make_vec_env(env_id, n_envs=NUM_ENVS, seed=seed, vec_env_cls=DummyVecEnv)
    return PPO(
        "MlpPolicy",
        VecNormalize(env, clip_obs=10.0, clip_reward=10.0, gamma=0.99),
        learning_rate=lambda remaining: 3e-4 * remaining,
        n_steps=STEPS_PER_ENV,
        batch_size=64,
        n_epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=0.0,
        vf_coef=0.25,
        max_grad_norm=0.5,
        policy_kwargs={
            "net_arch": {"pi": [64, 64], "vf": [64, 64]},
            "activation_fn": torch.nn.Tanh,
            "log_std_init": 0.0,
            "ortho_init": True,
        },
        seed=seed,
        device="cpu",
        verbose=0,
    )


def main() -> None:
    """Train and write the returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env_id")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)  # small networks gain nothing from more
    per_round = NUM_ENVS * STEPS_PER_ENV
    seen = EpisodeReturns()
    model = build(options.env_id, seed=options.seed)
    # The library would round the steps up to whole rounds; ours are rounded down.
    steps = max(1, options.steps // per_round) * per_round
    model.learn(total_timesteps=steps, callback=seen)
    names = ("stable-baselines3", "torch", "gymnasium", "mujoco")
    answer = {"returns": seen.returns, "about": {name: version(name) for name in names}}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
