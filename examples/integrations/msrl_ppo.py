"""MSRL's PPO on HalfCheetah, with episodes from Nitro's actors in place of its own environments.

docs/integrations/msrl.md says how to install it. It needs `nitro up` in another environment, on the
same folder or at NITRO_API_URL.

MSRL's loss knows no ends of episodes: it takes a batch for whole episodes of equal length. So a
fragment is an episode of HalfCheetah, which never ends early.
"""

import argparse
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor
from mindspore_rl.algorithm.ppo import config
from mindspore_rl.algorithm.ppo.ppo import PPOPolicy
from mindspore_rl.algorithm.ppo.ppo_trainer import PPOTrainer
from mindspore_rl.core import MSRL
from mindspore_rl.utils.callback import LossCallback, TimeCallback

import nitro
from nitro.pool.actor_pool import ActorPool

_EPISODE = 1000


class LinearMeansPolicy(PPOPolicy):  # type: ignore[misc] # the library has no types
    """MSRL's networks without the tanh on means: actors have nothing after the last layer."""

    class PPOActorNet(PPOPolicy.PPOActorNet):  # type: ignore[misc]
        """Means and deviations, for actions of any number."""

        def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
            """Return both for observations [..., F]."""
            x = self.tanh_actor(self.linear1_actor(x))
            means = self.linear_miu_actor(self.tanh_actor(self.linear2_actor(x)))
            return means, self.softplus_actor(self.zeros_like(means) + self.bias_sigma_actor)


class PoolSpaces:
    """What MSRL asks of an environment: spaces. Nobody takes steps in it."""

    num_environment = 1

    def __init__(self, params: dict[str, Any]) -> None:
        self.config: dict[str, Any] = {}
        self.observation_space = self.action_space = self
        self.shape, self.num_values = params["observation_shape"], params["action_size"]


class NitroPPOTrainer(PPOTrainer):  # type: ignore[misc]
    """MSRL's trainer, with a round of actors for each of its episodes."""

    def __init__(self, msrl: MSRL, params: dict[str, Any], pool: ActorPool) -> None:
        super().__init__(msrl, params)
        self._pool = pool

    def train_one_episode(self) -> tuple[Tensor, Tensor, Tensor]:
        """Have actors play whole episodes, and learn from them as MSRL does."""
        net = self.msrl.learner.actor_net
        batch = self._pool.collect(policy_of(net))
        states = batch.observations  # [T, n, F]
        following = np.concatenate([states[1:], batch.last_observations[None]])
        rewards = batch.rewards[..., None]
        experience = [
            Tensor(np.swapaxes(array, 0, 1).copy())  # [n, T, ...]
            for array in (states, batch.actions, rewards, following)
        ]
        loss = self._learn(*experience, *net(experience[0]))
        return loss, Tensor(float(batch.returns.mean())), Tensor(batch.num_steps)

    @mindspore.jit
    def _learn(
        self,
        states: Tensor,
        actions: Tensor,
        rewards: Tensor,
        following: Tensor,
        means: Tensor,
        deviations: Tensor,
    ) -> Tensor:
        """Update the networks; each new number of actors is compiled once, for a minute or so."""
        return self.msrl.agent_learn((states, actions, rewards, following, means, deviations))


def policy_of(net: LinearMeansPolicy.PPOActorNet) -> nitro.Policy:
    """Return MSRL's policy as actors run it."""
    layers = (net.linear1_actor, net.linear2_actor, net.linear_miu_actor)
    return nitro.Policy(
        weights=tuple(layer.weight.asnumpy().copy() for layer in layers),
        biases=tuple(layer.bias.asnumpy().copy() for layer in layers),
        log_std=np.log(np.logaddexp(0.0, net.bias_sigma_actor.asnumpy())),  # softplus
    )


def algorithm(pool: ActorPool) -> dict[str, Any]:
    """Return MSRL's configuration of PPO, with the pool's spaces and without a replay buffer."""
    spaces = {
        "observation_shape": pool.environment.observation.shape,
        "action_size": len(pool.environment.action.low),
    }
    environment = {"number": 1, "type": PoolSpaces, "params": {"PoolSpaces": spaces}}
    made = {name: part for name, part in config.algorithm_config.items() if name != "replay_buffer"}
    return {
        **made,
        "collect_environment": environment,
        "eval_environment": environment,
        "policy_and_network": {**made["policy_and_network"], "type": LinearMeansPolicy},
    }


def main() -> None:
    """Train for some rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--actors", type=int, default=8, help="at least 2")
    options = parser.parse_args()
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(1)
    with nitro.ActorPool(
        "HalfCheetah-v5",
        fragment=_EPISODE,
        horizon="fragment",
        actors=options.actors,
        evaluate_every=max(1, options.rounds // 10),
        seed=1,
    ) as pool:
        trainer = NitroPPOTrainer(MSRL(algorithm(pool)), config.trainer_params, pool)
        trainer.train(options.rounds, [TimeCallback(), LossCallback()])
    for evaluation in pool.evaluations:
        print(f"return {evaluation.mean_return:.0f} after {evaluation.policy_version} rounds")
    print(f"projected cost: ${pool.cost_usd:.4f}")


if __name__ == "__main__":
    main()
