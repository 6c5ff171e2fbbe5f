"""PPO with TorchRL's loss and advantages, and Nitro's actors in place of a collector.

    pip install torchrl
    python examples/pool/torchrl_ppo.py --actors 2 8

A batch becomes a TensorDict of shape [n, T], as TorchRL's collectors give it. Everything else is
TorchRL's: the modules, `GAE`, `ClipPPOLoss`. The actor is a plain `nn.Sequential` inside of
TorchRL's modules, so Nitro needs no map of names for it.
"""

import argparse

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import nitro

EPOCHS, MINIBATCH = 10, 256


def network(inputs, outputs):
    """Return layers that Nitro's actors can run."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def tensordict_of(batch, num_actions):
    """Return a batch as TorchRL's collectors give one, [n, T]."""
    data = batch.torch()
    following = torch.cat([data.observations[1:], data.last_observations[None]])
    following[data.final_steps, data.final_columns] = data.final_observations
    ended = data.terminated | data.truncated
    last = torch.zeros_like(ended)
    last[-1] = True  # the fragment's end cuts what goes on: bootstrapped, as after a time limit

    def by_column(values):
        return values.transpose(0, 1).contiguous()

    after = {
        "observation": by_column(following),
        "reward": by_column(data.rewards)[..., None],
        "done": by_column(ended | last)[..., None],
        "terminated": by_column(data.terminated)[..., None],
    }
    return TensorDict(
        {
            "observation": by_column(data.observations),
            "action": by_column(nn.functional.one_hot(data.actions, num_actions)),
            "action_log_prob": by_column(data.log_probs),
            "next": TensorDict(after, batch_size=ended.T.shape),
        },
        batch_size=ended.T.shape,
    )


def update(loss_of, advantage, optimizer, data):
    """Take PPO's gradient steps on one batch."""
    with torch.no_grad():
        advantage(data)
    flat = data.reshape(-1)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(flat)).split(MINIBATCH):
            losses = loss_of(flat[chosen])
            loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(loss_of.parameters(), 0.5)
            optimizer.step()
    return {"loss": loss.item()}


def main(arguments=None):
    """Train until the target, the budget or all steps; return the best evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--actors", type=int, nargs=2, default=(4, 16))
    parser.add_argument("--target", type=float, default=475.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs-dir", default="runs")
    args = parser.parse_args(arguments)

    torch.manual_seed(args.seed)
    steps = 0
    pool = nitro.ActorPool(
        args.env,
        fragment=128,
        actors=tuple(args.actors),
        policy="random",
        budget_usd=1.0,
        target_return=args.target,
        evaluate_every=5,
        evaluation_episodes=5,
        seed=args.seed,
        runs_dir=args.runs_dir,
    )
    with pool:
        size, choices = pool.environment.observation.shape[0], pool.environment.action.n
        actor_network = network(size, choices)
        actor = ProbabilisticActor(
            TensorDictModule(actor_network, in_keys=["observation"], out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=OneHotCategorical,
            return_log_prob=True,
        )
        critic = ValueOperator(network(size, 1), in_keys=["observation"])
        loss_of = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.0)
        advantage = GAE(gamma=0.98, lmbda=0.8, value_network=critic)
        optimizer = torch.optim.Adam(loss_of.parameters(), lr=1e-3)
        for round in pool.rounds():
            batch = pool.collect(actor_network)
            pool.report(stats=update(loss_of, advantage, optimizer, tensordict_of(batch, choices)))
            steps += batch.num_steps
            returns = f"{batch.returns.mean():.1f}" if len(batch.returns) else "-"
            print(f"round {round.number}: {round.actors} actors, {steps} steps, return {returns}")
            if steps >= args.total_steps:
                break
    best = max((each.mean_return for each in pool.evaluations), default=float("nan"))
    print(f"{pool.stopped or 'all steps made'}: best evaluation {best:.1f}")
    return best


if __name__ == "__main__":
    main()
