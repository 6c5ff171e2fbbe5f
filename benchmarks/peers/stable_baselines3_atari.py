"""Stable-Baselines3's PPO on one game, then whole games with it; runs in the peers' interpreter.

    python stable_baselines3_atari.py ENV STEPS SEED GAMES

Writes one line of JSON to standard output: raw scores of whole games with sampled actions after the
training, seconds it took, and versions. Preprocessing is the library's own. Hyper-parameters are
those of our preset `standard` for images, as far as the library has them: its value loss has no
factor of one half, hence half our coefficient, and takes the clipped value alone where ours takes
the worse of the two. A round is eight environments of 128 steps, each in a process of its own; they
go on from round to round.
"""

import argparse
import json
import sys
import time
from importlib.metadata import version
from typing import Any

import ale_py  # noqa: F401 - registers the games
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

NUM_ENVS = 8
STEPS_PER_ENV = 128
NUM_STACKED = 4


def build(env_id: str, *, seed: int) -> Any:
    """Return the agent."""
    games = make_atari_env(env_id, n_envs=NUM_ENVS, seed=seed, vec_env_cls=SubprocVecEnv)
    env = VecFrameStack(games, NUM_STACKED)
    return PPO(
        "CnnPolicy",
        env,
        learning_rate=lambda remaining: 2.5e-4 * remaining,
        n_steps=STEPS_PER_ENV,
        batch_size=256,
        n_epochs=4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.1,
        clip_range_vf=0.1,
        ent_coef=0.01,
        vf_coef=0.25,
        max_grad_norm=0.5,
        seed=seed,
        device="auto",  # as our learner: the GPU where there is one
        verbose=0,
    )


def main() -> None:
    """Train, play and write the scores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env_id")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("games", type=int)
    options = parser.parse_args()
    model = build(options.env_id, seed=options.seed)
    per_round = NUM_ENVS * STEPS_PER_ENV
    start = time.perf_counter()
    # The library would round the steps up to whole rounds; ours are rounded down.
    model.learn(total_timesteps=max(1, options.steps // per_round) * per_round)
    train_s = time.perf_counter() - start
    env = VecFrameStack(make_atari_env(options.env_id, n_envs=1, seed=10_000 + options.seed), 4)
    scores, _ = evaluate_policy(
        model,
        env,
        n_eval_episodes=options.games,
        deterministic=False,
        return_episode_rewards=True,
    )
    names = ("stable-baselines3", "torch", "gymnasium", "ale-py")
    about = {name: version(name) for name in names}
    about |= {"threads": str(torch.get_num_threads()), "device": str(model.device)}
    answer = {"scores": [float(score) for score in scores], "train_s": train_s, "about": about}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
