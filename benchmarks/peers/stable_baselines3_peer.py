"""PPO and SAC of Stable-Baselines3, CrossQ and ARS of SB3-Contrib, measured on request.

    python stable_baselines3_peer.py rollout ENV STEPS
    python stable_baselines3_peer.py train PRESET ENV NUM_ENVS UPDATES
    python stable_baselines3_peer.py sac|crossq ENV UPDATES
    python stable_baselines3_peer.py ars ENV

The first line on standard output gives versions, threads and what differs; each line read from
standard input is answered with one measurement. Hyper-parameters are those of our PRESET, `paper`
or `standard` (rollouts: `paper`), as far as the library has them.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from sb3_contrib import ARS, CrossQ
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

NO_CLIPPING = 1e9
"""The library always clips the gradient's norm; at this one it changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One of our presets in the library's words."""

    samples_per_update: int
    width: int
    """Of both layers of both networks."""
    normalise: bool
    """Whether observations and rewards are normalised."""
    arguments: dict[str, Any]
    """Of the library's PPO."""
    differs: str
    """From ours, and in whose favour."""


SETTINGS = {
    "paper": Setting(
        samples_per_update=4096,  # 16 actors of 256 steps
        width=256,
        normalise=False,
        arguments={
            "learning_rate": 5e-5,
            "batch_size": 128,
            "n_epochs": 30,
            "gae_lambda": 1.0,
            "clip_range": 0.3,
            "vf_coef": 1.0,
            "max_grad_norm": NO_CLIPPING,
        },
        differs="no KL penalty and no state-dependent deviation, both of which ours pays for",
    ),
    "standard": Setting(
        samples_per_update=2048,
        width=64,
        normalise=True,
        arguments={
            "learning_rate": 3e-4,
            "batch_size": 64,
            "n_epochs": 10,
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "clip_range_vf": 0.2,
            "vf_coef": 0.25,  # its value loss has no factor of one half
            "max_grad_norm": 0.5,
        },
        differs="VecNormalize for observations and rewards; constant step size; the value loss "
        "takes the clipped value alone",
    ),
}
GRADIENT_ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sac": (SAC, {}),
    "crossq": (CrossQ, {"policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [256, 256]}}}),
}
"""Each with its arguments."""


def build(setting: Setting, env_id: str, *, num_envs: int, steps: int) -> Any:
    """Return a PPO agent whose updates use `steps` steps of all environments together."""
    env: Any = make_vec_env(env_id, n_envs=num_envs, seed=0, vec_env_cls=DummyVecEnv)
    return PPO(
        "MlpPolicy",
        VecNormalize(env, gamma=0.99) if setting.normalise else env,
        n_steps=steps // num_envs,
        gamma=0.99,
        ent_coef=0.0,
        policy_kwargs={
            "net_arch": {"pi": [setting.width] * 2, "vf": [setting.width] * 2},
            "activation_fn": torch.nn.Tanh,
        },
        seed=0,
        device="cpu",
        verbose=0,
        **setting.arguments,
    )


def rollout_sampler(env_id: str, steps: int) -> Callable[[], float]:
    """Return a function that rolls out `steps` steps and returns the seconds it took."""
    torch.set_num_threads(1)  # one core, like an actor
    model = build(SETTINGS["paper"], env_id, num_envs=1, steps=steps)
    _, callback = model._setup_learn(total_timesteps=steps)
    callback.on_training_start(locals(), globals())

    def sample() -> float:
        start = time.perf_counter()
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=steps)
        return time.perf_counter() - start

    return sample


def training_sampler(
    setting: Setting, env_id: str, num_envs: int, updates: int
) -> Callable[[], float]:
    """Return a function that trains for `updates` updates and returns the seconds it took.

    It trains with one thread or with one per core, whichever has just been faster.
    """
    steps = setting.samples_per_update
    model = build(setting, env_id, num_envs=num_envs, steps=steps)

    def train(num_updates: int) -> float:
        start = time.perf_counter()
        model.learn(total_timesteps=num_updates * steps, reset_num_timesteps=False)
        return time.perf_counter() - start

    def with_threads(count: int) -> float:
        torch.set_num_threads(count)
        return train(1)

    train(1)  # the first update is slower, whatever the threads
    torch.set_num_threads(min({1, torch.get_num_threads()}, key=with_threads))
    return lambda: train(updates)


def gradient_sampler(algorithm: str, env_id: str, updates: int) -> Callable[[], float]:
    """Return a function that takes gradient steps of SAC or CrossQ and returns their CPU time.

    SAC's own defaults are those of our presets; CrossQ's critics get our width. One thread.
    """
    torch.set_num_threads(1)
    made, arguments = GRADIENT_ALGORITHMS[algorithm]
    model = made("MlpPolicy", env_id, learning_starts=1000, seed=0, device="cpu", **arguments)
    model.learn(1001)

    def sample() -> float:
        start = time.process_time()
        model.train(gradient_steps=updates, batch_size=model.batch_size)
        return time.process_time() - start

    return sample


def ars_sampler(env_id: str) -> tuple[Callable[[], float], int]:
    """Return a function that does an iteration of one direction, and the steps of its episodes.

    Observations are normalised, as ours are; one thread.
    """
    torch.set_num_threads(1)
    env = VecNormalize(make_vec_env(env_id, n_envs=1, seed=0), norm_reward=False)
    model = ARS("LinearPolicy", env, n_delta=1, seed=0, device="cpu")
    _, callback = model._setup_learn(total_timesteps=10**9)
    callback.on_training_start(locals(), globals())

    def sample() -> float:
        start = time.perf_counter()
        model._do_one_update(callback, None)
        return time.perf_counter() - start

    sample()
    return sample, int(model.num_timesteps)


def main() -> None:
    """Answer every line of standard input with one measurement."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    rollout = commands.add_parser("rollout")
    rollout.add_argument("env_id")
    rollout.add_argument("steps", type=int)
    train = commands.add_parser("train")
    train.add_argument("preset", choices=SETTINGS)
    train.add_argument("env_id")
    train.add_argument("num_envs", type=int)
    train.add_argument("updates", type=int)
    for name in GRADIENT_ALGORITHMS:
        gradient = commands.add_parser(name)
        gradient.add_argument("env_id")
        gradient.add_argument("steps", type=int)
    commands.add_parser("ars").add_argument("env_id")
    options = parser.parse_args()
    about = {}
    if options.command == "rollout":
        steps = options.steps
        sample = rollout_sampler(options.env_id, steps)
    elif options.command == "ars":
        sample, steps = ars_sampler(options.env_id)
    elif options.command in GRADIENT_ALGORITHMS:
        steps = options.steps
        sample = gradient_sampler(options.command, options.env_id, steps)
    else:
        setting = SETTINGS[options.preset]
        about["differs"] = setting.differs
        steps = options.updates * setting.samples_per_update
        sample = training_sampler(setting, options.env_id, options.num_envs, options.updates)
    versions = {
        name: version(name)
        for name in ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "mujoco")
    }
    answer({**versions, "threads": torch.get_num_threads(), **about})
    for _ in sys.stdin:
        answer({"steps": steps, "seconds": sample()})


def answer(message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
