"""What `test_rllib.py` looks at, found in RLlib's own interpreter; prints one line of JSON."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from gymnasium import spaces
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from nitro.errors import CommandError
from nitro.integrations.rllib import NitroEnvRunner, pool_settings

_COUNTS = {"policy": "schedule", "num_actors": [2, 4, 3, 3, 3, 3]}


def small(base: Any, env: str = "CartPole-v1", **pool: Any) -> Any:
    """Return an algorithm's configuration with rounds of 32 steps."""
    settings = {"actors": (2, 4), "policy": _COUNTS, "budget_usd": 10.0, **pool}
    return (
        base.environment(env, env_config={"nitro": settings})
        .env_runners(
            env_runner_cls=NitroEnvRunner,
            num_env_runners=0,
            num_envs_per_env_runner=2,
            rollout_fragment_length=32,
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=64)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 16], vf_share_layers=False))
        .debugging(seed=1, log_level="ERROR")
    )


def ppo(env: str = "CartPole-v1", **pool: Any) -> Any:
    """Return a small configuration of PPO."""
    return small(PPOConfig(), env, **pool).training(minibatch_size=32, num_epochs=2)


def rounds_of_changing_width() -> dict[str, Any]:
    """Two iterations with an evaluation, a checkpoint, and one iteration from there."""
    config = ppo().evaluation(evaluation_interval=2, evaluation_duration=2)
    algorithm = config.build_algo()
    results = [algorithm.train() for _ in range(2)]
    folder = algorithm.save_to_path(Path("checkpoint").absolute())
    weights = algorithm.env_runner.module.get_state()
    algorithm.stop()
    restored = Algorithm.from_checkpoint(folder)
    theirs = restored.env_runner.module.get_state()
    equal = all(np.array_equal(value, theirs[name]) for name, value in weights.items())
    after = restored.train()
    restored.stop()
    sampled = [result["env_runners"] for result in (*results, after)]
    return {
        "actors": [int(each["nitro_actors"]) for each in sampled],
        "steps": [int(each["num_env_steps_sampled"]) for each in sampled],
        "lifetime": int(sampled[-1]["num_env_steps_sampled_lifetime"]),
        "weights_seq_no": [int(each["weights_seq_no"]) for each in sampled[:2]],
        "episode_return": float(sampled[0]["episode_return_mean"]),
        "kl": [float(r["learners"]["default_policy"]["mean_kl_loss"]) for r in results],
        "evaluation": float(results[1]["evaluation"]["env_runners"]["episode_return_mean"]),
        "restored_is_equal": equal,
    }


def probabilities(*, free_log_std: bool) -> dict[str, float]:
    """How far RLlib is from what actors say of continuous actions, after an update."""
    config = ppo("Pendulum-v1", actors=2, horizon=20).rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=[16, 16], vf_share_layers=False, free_log_std=free_log_std
        )
    )
    algorithm = config.build_algo()
    algorithm.train()
    runner = algorithm.env_runner
    episodes = runner.sample()
    off = 0.0
    for episode in episodes:
        inputs = torch.tensor(episode.get_observations(slice(0, -1)))
        with torch.no_grad():
            out = runner.module.forward_exploration({Columns.OBS: inputs})
        chosen = runner.module.get_exploration_action_dist_cls()
        distribution = chosen.from_logits(out[Columns.ACTION_DIST_INPUTS])
        theirs = distribution.logp(torch.tensor(episode.get_actions()))
        ours = episode.get_extra_model_outputs(Columns.ACTION_LOGP)
        off = max(off, float(np.abs(theirs.numpy() - ours).max()))
    algorithm.stop()
    return {
        "off": off,
        "cut": sum(episode.is_truncated for episode in episodes),
        "going_on": sum(not episode.is_done for episode in episodes),
        "steps": sum(len(episode) for episode in episodes),
    }


def trains(base: Any) -> dict[str, Any]:
    """What another algorithm says of two iterations."""
    algorithm = small(base).build_algo()
    results = [algorithm.train() for _ in range(2)]
    algorithm.stop()
    learned = [r["learners"]["default_policy"]["total_loss"] for r in results]
    return {
        "steps": int(results[-1]["env_runners"]["num_env_steps_sampled_lifetime"]),
        "loss_is_finite": bool(np.isfinite(learned).all()),
    }


def end_of_the_job() -> str:
    """How the end of a job of two rounds is said."""
    algorithm = ppo(max_rounds=2).build_algo()
    algorithm.train()
    algorithm.train()
    said = refusal(algorithm.train)
    algorithm.stop()
    return said


def pool_of_few_settings(**settings: Any) -> dict[str, Any]:
    """What the pool is told where nothing says how long a fragment is."""
    config = PPOConfig().environment("CartPole-v1", env_config={"nitro": settings})
    config.env_runners(rollout_fragment_length="auto", num_envs_per_env_runner=4)
    return pool_settings(config.training(train_batch_size_per_learner=4000))


class Offset(gymnasium.Env[Any, Any]):
    """Ends at once, and takes nothing but actions of its space, which do not begin at 0."""

    observation_space = spaces.Box(-1, 1, (2,))

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), float(self.action_space.contains(action)), True, False, {}


def offsets() -> list[float]:
    """Returns of RLlib's own evaluation: 1 where an action was one of the environment's."""
    returns: list[float] = []
    for space in (spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[-4, 7])):
        register_env("offset", lambda config: Offset(config["space"]))
        config = PPOConfig().environment("offset", env_config={"space": space})
        config.env_runners(env_runner_cls=NitroEnvRunner, num_envs_per_env_runner=2)
        config.in_evaluation = True
        runner = NitroEnvRunner(config=config)
        returns += [float(episode.get_return()) for episode in runner.sample(num_episodes=8)]
        runner.stop()
    return returns


def refusal(attempt: Callable[[], object]) -> str:
    """Return the message that something is refused with."""
    try:
        attempt()
    except CommandError as error:
        return str(error)
    return "not refused"


def refusals() -> dict[str, str]:
    """What cannot be done, and how that is said."""

    def built(**env_runners: Any) -> Callable[[], object]:
        return lambda: ppo().env_runners(**env_runners).build_algo()

    return {
        "runners": refusal(built(num_env_runners=1)),
        "connector": refusal(built(env_to_module_connector=lambda *_a, **_k: MeanStdFilter())),
        "action connector": refusal(built(module_to_env_connector=lambda *_a, **_k: [])),
        "explore": refusal(built(explore=False)),
        "map": refusal(lambda: ppo(policy_map="sb3").build_algo()),
        "actions": refusal(lambda: ppo().environment(normalize_actions=False).build_algo()),
        "fragment": refusal(lambda: ppo(fragment=32).build_algo()),
        "lstm": refusal(
            lambda: ppo().rl_module(model_config=DefaultModelConfig(use_lstm=True)).build_algo()
        ),
        "activation": refusal(
            lambda: (
                ppo()
                .rl_module(
                    model_config=DefaultModelConfig(fcnet_activation="elu", vf_share_layers=False)
                )
                .build_algo()
                .train()
            )
        ),
    }


def main() -> None:
    """Print all of it."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ.update(RAY_worker_niceness="0")  # at 15 a runner starts for minutes, beside others
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    told = {
        "widths": rounds_of_changing_width(),
        "state dependent": probabilities(free_log_std=False),
        "free": probabilities(free_log_std=True),
        "appo": trains(APPOConfig()),
        "impala": trains(IMPALAConfig()),
        "few settings": pool_of_few_settings(policy="nitro"),
        "fragments": [
            pool_of_few_settings(**each)["fragment"]
            for each in ({"actors": (3, 12)}, {"actors": 2, "envs_per_actor": 4})
        ],
        "end": end_of_the_job(),
        "offsets": offsets(),
        "refusals": refusals(),
    }
    answers.write(json.dumps(told) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
