"""RLlib's PPO on CartPole, with a number of actors that Nitro decides about.

Needs `nitro-rl[rllib]`, and `nitro up` in another environment, on the same folder or at
NITRO_API_URL.
"""

from pathlib import Path

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from nitro.integrations.rllib import NitroEnvRunner

_EVALUATE_EVERY = 5


def main() -> None:
    """Train until ten evaluation episodes have a mean return of 400."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    pool = {"actors": (2, 8), "policy": "nitro", "seed": 1}
    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"nitro": pool})
        .env_runners(env_runner_cls=NitroEnvRunner, num_env_runners=0, rollout_fragment_length=256)
        .training(
            train_batch_size_per_learner=512,
            minibatch_size=128,
            num_epochs=10,
            lr=1e-3,
            lambda_=0.95,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
        .evaluation(evaluation_interval=_EVALUATE_EVERY, evaluation_duration=10)
        .debugging(seed=1, log_level="ERROR")
    )
    algorithm = config.build_algo()
    actors, best = [], 0.0
    while best < 400 and len(actors) < 100:
        result = algorithm.train()
        sampled = result["env_runners"]
        actors.append(int(sampled["nitro_actors"]))
        if len(actors) % _EVALUATE_EVERY == 0:
            best = result["evaluation"]["env_runners"]["episode_return_mean"]
            steps = sampled["num_env_steps_sampled_lifetime"]
            print(f"return {best:.0f} after {steps:,.0f} steps", flush=True)
    print(f"actors of each iteration: {actors}")
    print(f"projected cost: ${algorithm.env_runner.pool.cost_usd:.4f}")
    print(f"checkpoint: {algorithm.save_to_path(Path('cartpole-rllib').absolute())}")
    algorithm.stop()


if __name__ == "__main__":
    main()
