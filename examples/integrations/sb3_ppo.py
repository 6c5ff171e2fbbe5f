"""Stable-Baselines3's PPO on CartPole, with a number of actors that Nitro decides about.

Needs `nitro-rl[local,sb3]`.
"""

import nitro
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env

from nitro.integrations.sb3 import NitroPPO


def main() -> None:
    """Train until ten evaluation episodes have a mean return of 475, then save and load."""
    enough = StopTrainingOnRewardThreshold(reward_threshold=475)
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1"),
        callback_on_new_best=enough,
        eval_freq=512,
        n_eval_episodes=10,
        verbose=0,
    )
    with nitro.ActorPool("CartPole-v1", fragment=128, actors=(2, 8), policy="nitro", seed=1) as pool:
        model = NitroPPO("MlpPolicy", pool=pool, learning_rate=1e-3, batch_size=128, seed=1)
        model.learn(100_000, callback=evaluation)
        print(f"return {evaluation.best_mean_reward:.0f} after {model.num_timesteps:,} steps")
        print(f"actors of each round: {model.actors}")
        print(f"projected cost: ${pool.cost_usd:.4f}")
        model.save("cartpole")
    again = NitroPPO.load("cartpole")
    action, _ = again.predict(make_vec_env("CartPole-v1").reset(), deterministic=True)
    print(f"loaded; its first action is {action[0]}")


if __name__ == "__main__":
    main()
