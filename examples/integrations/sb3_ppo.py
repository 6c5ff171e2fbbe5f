"""Stable-Baselines3's PPO on CartPole, with a number of actors that Nitro decides about.

Needs `nitro-rl[local,sb3]`.
"""

from stable_baselines3.common.callbacks import (
    BaseCallback,
    EvalCallback,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env

import nitro
from nitro.integrations.sb3 import NitroPPO


class Actors(BaseCallback):
    """Notes how many environments each rollout came from."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.counts.append(self.model.rollout_buffer.n_envs)


def main() -> None:
    """Train until ten evaluation episodes have a mean return of 475, then save and load."""
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1", seed=2),
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=475),
        eval_freq=512,
        n_eval_episodes=10,
    )
    actors = Actors()
    with nitro.ActorPool(
        "CartPole-v1", fragment=128, actors=(2, 8), policy="nitro", seed=1
    ) as pool:
        model = NitroPPO("MlpPolicy", pool=pool, learning_rate=1e-3, batch_size=128, seed=1)
        model.learn(100_000, callback=[evaluation, actors])
        print(f"return {evaluation.best_mean_reward:.0f} after {model.num_timesteps:,} steps")
        print(f"actors of each round: {actors.counts}")
        print(f"projected cost: ${pool.cost_usd:.4f}")
        model.save("cartpole")
    observations = make_vec_env("CartPole-v1").reset()
    action, _ = NitroPPO.load("cartpole").predict(observations, deterministic=True)
    print(f"the loaded policy's first action: {action[0]}")


if __name__ == "__main__":
    main()
