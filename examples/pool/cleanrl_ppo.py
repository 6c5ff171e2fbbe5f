"""PPO in the style of CleanRL, with Nitro's actors in place of a vector of environments.

    python examples/pool/cleanrl_ppo.py --total-steps 200000 --actors 2 8

What differs from CleanRL's `ppo.py` is marked with NITRO: the environments are gone, a batch comes
from `pool.collect`, and its number of columns changes from round to round. Truncated episodes are
bootstrapped, as CleanRL's newer versions do.
"""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical

import nitro

GAMMA, GAE_LAMBDA, CLIP, EPOCHS, MINIBATCH = 0.98, 0.8, 0.2, 10, 256


def layer(inputs, outputs, std=2**0.5):
    """Return a linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    torch.nn.init.orthogonal_(linear.weight, std)
    torch.nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Actor and critic, as in CleanRL: `policy_map="cleanrl"` finds the actor."""

    def __init__(self, observation_size, num_actions):
        super().__init__()
        self.critic = nn.Sequential(
            layer(observation_size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(observation_size, 64),
            nn.Tanh(),
            layer(64, 64),
            nn.Tanh(),
            layer(64, num_actions, 0.01),
        )


def advantages_of(agent, data):
    """Return advantages and returns [T, n]; a cut episode is bootstrapped from its last state."""
    values = agent.critic(data.observations).squeeze(-1)  # [T, n]
    following = torch.cat([values[1:], agent.critic(data.last_observations).T])
    if len(data.final_observations):
        finals = agent.critic(data.final_observations).squeeze(-1)
        following[data.final_steps, data.final_columns] = finals
    delta = data.rewards + GAMMA * following * ~data.terminated - values
    ended = data.terminated | data.truncated
    advantage, carried = torch.zeros_like(values), torch.zeros_like(values[0])
    for t in reversed(range(len(values))):
        carried = delta[t] + GAMMA * GAE_LAMBDA * carried * ~ended[t]
        advantage[t] = carried
    return advantage, advantage + values


def update(agent, optimizer, data, generator):
    """Take PPO's gradient steps on one batch; return scalars for the dashboard."""
    with torch.no_grad():
        advantage, target = (each.reshape(-1) for each in advantages_of(agent, data))
    seen, taken = data.observations.flatten(0, 1), data.actions.flatten(0, 1)
    old = data.log_probs.reshape(-1)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(old), generator=generator).split(MINIBATCH):
            policy = Categorical(logits=agent.actor(seen[chosen]))
            ratio = (policy.log_prob(taken[chosen]) - old[chosen]).exp()
            gain = advantage[chosen]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy_loss = -torch.min(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value_error = agent.critic(seen[chosen]).squeeze(-1) - target[chosen]
            loss = policy_loss + 0.25 * value_error.square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return {"loss": loss.item()}


def main(arguments=None):
    """Train until the target, the budget or all steps; return the best evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--fragment", type=int, default=128)
    parser.add_argument("--actors", type=int, nargs=2, default=(4, 16))
    parser.add_argument("--scaling", default="random", help="nitro, marginal, random, ...")
    parser.add_argument("--target", type=float, default=475.0)
    parser.add_argument("--budget-usd", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--api-url", help="a deployment; default: this machine")
    parser.add_argument("--runs-dir", default="runs")
    args = parser.parse_args(arguments)

    generator = torch.manual_seed(args.seed)
    steps = 0
    pool = nitro.ActorPool(  # NITRO: in place of gym.vector.SyncVectorEnv
        args.env,
        fragment=args.fragment,
        actors=tuple(args.actors),
        policy=args.scaling,
        policy_map="cleanrl",
        budget_usd=args.budget_usd,
        target_return=args.target,
        evaluate_every=5,
        evaluation_episodes=5,
        seed=args.seed,
        api_url=args.api_url,
        runs_dir=args.runs_dir,
    )
    with pool:
        agent = Agent(pool.environment.observation.shape[0], pool.environment.action.n)
        optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
        for round in pool.rounds():
            batch = pool.collect(agent)  # NITRO: in place of the loop over envs.step
            stats = update(agent, optimizer, batch.torch(), generator)
            if args.scaling in ("nitro", "marginal"):
                pool.report(curvature=nitro.measure_curvature(agent, batch, policy_map="cleanrl"))
            pool.report(stats=stats)
            steps += batch.num_steps
            returns = f"{batch.returns.mean():.1f}" if len(batch.returns) else "-"
            print(f"round {round.number}: {round.actors} actors, {steps} steps, return {returns}")
            if steps >= args.total_steps:
                break
    best = max((each.mean_return for each in pool.evaluations), default=float("nan"))
    why = pool.stopped or "all steps made"
    print(f"{why}: best evaluation {best:.1f}, {pool.cost_usd:.4f} USD")
    return best


if __name__ == "__main__":
    main()
