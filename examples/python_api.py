"""Train on CartPole, look at what came of it, and act with the best policy."""

import gymnasium

import nitro


def main() -> None:
    """Train for a few seconds, and play one episode with the best policy."""
    run = nitro.train("CartPole-v1", total_steps=20_000, seed=1)
    best = nitro.load(run.folder, checkpoint="best")
    print(best.evaluate(episodes=5))
    print(run.plot())

    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    steps, ended = 0, False
    while not ended:
        observation, _, terminated, truncated, _ = env.step(best.policy.act(observation))
        steps += 1
        ended = terminated or truncated
    print(f"an episode of {steps} steps")


if __name__ == "__main__":
    main()
