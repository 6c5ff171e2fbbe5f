"""Stable-Baselines3's PPO with Nitro's actors in place of its own environments.

    import nitro
    from nitro.integrations.sb3 import NitroPPO

    with nitro.ActorPool("CartPole-v1", fragment=128, actors=(2, 8)) as pool:
        model = NitroPPO("MlpPolicy", pool=pool)
        model.learn(50_000)
        model.save("cartpole")

Only the collection of rollouts is Nitro's. Callbacks, logging, saving, loading and the update are
the library's. The number of actors, and so the size of the rollout buffer, may change with every
rollout.

Legend: `T` steps of a fragment, `n` columns, one for each environment of each actor.
"""

import time
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from nitro.errors import CommandError
from nitro.integrations.choices import first_choice, require_no_mask
from nitro.integrations.endings import endings
from nitro.integrations.sb3_observations import NormalisedObservations
from nitro.pool.actor_pool import ActorPool
from nitro.pool.batch import Batch
from nitro.pool.curvature import measure_curvature
from nitro.pool.policy import Policy
from nitro.pool.policy_maps import policy_of
from nitro.pool.stopping import PoolStopped

Floats = NDArray[np.float32]


class NitroPPO(PPO):  # type: ignore[misc] # the library has no types
    """PPO whose rollouts come from an `ActorPool`.

    `policy` and the keyword arguments are the same as for the library's `PPO`. A local environment
    of the same name is created for its spaces; it takes no training steps. `n_steps` is the pool's
    fragment.

    Args:
        policy: `MlpPolicy`, with linear layers and tanh or ReLU between them.
        env: An environment to use in place of the pool's.
        pool: Source of rollouts. A model without a pool predicts, but does not learn.
        normalize_observations: Whether to normalise by running statistics, which actors get with
            the policy; replaces `VecNormalize`.
        measure_curvature: Whether to measure it after every update, for the scaling policies
            `nitro`, `marginal` and `kungfu`; it takes some milliseconds.

    Raises:
        CommandError: An argument is not supported; names it.
    """

    pool: ActorPool | None = None

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | VecEnv | str | None = None,
        *,
        pool: ActorPool | None = None,
        normalize_observations: bool = False,
        measure_curvature: bool = True,
        **settings: Any,
    ) -> None:
        self.pool = pool
        self.measure_curvature = measure_curvature
        self._round: tuple[Batch, Floats] | None = None
        if pool is not None:
            env = pool.env_id if env is None else env
            if settings.setdefault("n_steps", pool.fragment) != pool.fragment:
                raise CommandError(
                    f"n_steps: is the pool's fragment ({pool.fragment}), got {settings['n_steps']}"
                )
            require_no_mask(pool.environment)
        if normalize_observations:
            theirs = settings.get("policy_kwargs") or {}
            if "features_extractor_class" in theirs:
                raise CommandError(
                    "normalize_observations: takes the place of policy_kwargs' "
                    "features_extractor_class; leave one of them out"
                )
            ours = {"features_extractor_class": NormalisedObservations}
            settings["policy_kwargs"] = {**theirs, **ours}
        super().__init__(policy, env, **settings)

    @classmethod
    def load(
        cls, path: Any, env: Any = None, *, pool: ActorPool | None = None, **settings: Any
    ) -> Self:
        """Return a saved model; with a pool it can continue to learn."""
        if pool is not None:
            env = gymnasium.make(pool.env_id) if env is None else env
        loaded: Self = super().load(path, env, pool=pool, **settings)
        return loaded

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], Any]:
        """Return actions for `env.step`; the library itself numbers them from 0."""
        action, state = super().predict(observation, state, episode_start, deterministic)
        return action + first_choice(self.action_space), state

    def _setup_model(self) -> None:
        super()._setup_model()
        _require_supported(self)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "pool", "_round"]

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
    ) -> bool:
        """Let the actors roll the policy out, and fill a buffer with a column per environment.

        Returns:
            Whether to continue: False if a callback or the pool's budget ended the training.
        """
        if self.pool is None:
            raise CommandError("pool: this model has none to learn with; load it with pool=...")
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        try:
            batch = self.pool.collect(self._policy())
        except PoolStopped:
            return False  # `learn` ends as after a callback's stop
        rollout_buffer = self.rollout_buffer = self._buffer(batch)
        if not self._fill(batch, rollout_buffer, callback, told=locals()):
            return False
        with torch.no_grad():
            last_values = self.policy.predict_values(self._tensor(batch.last_observations))
        dones = (batch.terminated | batch.truncated)[-1]
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)
        self._round = batch, self._learned(rollout_buffer.advantages)
        self._log(batch)
        callback.on_rollout_end()
        return True

    def train(self) -> None:
        """Update the policy from the buffer, measure, and update the observation statistics."""
        super().train()
        if self.measure_curvature and self.pool is not None and self._round is not None:
            self.pool.report(curvature=measure_curvature(self._policy(), *self._round))
        for module in self.policy.modules():  # the value network may have its own extractor
            if isinstance(module, NormalisedObservations):
                module.learn(self.rollout_buffer.observations)

    def _policy(self) -> Policy:
        """Return the policy in the actors' form."""
        policy = policy_of(self.policy, "sb3")
        extractor = self.policy.features_extractor
        normalises = isinstance(extractor, NormalisedObservations)
        return extractor.normalised(policy) if normalises else policy

    def _learned(self, advantages: Floats) -> Floats:
        """Return advantages as in the update, which flattens the buffer's."""
        if not self.normalize_advantage:
            return advantages.copy()
        normalised: Floats = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return normalised

    def _buffer(self, batch: Batch) -> RolloutBuffer:
        return self.rollout_buffer_class(
            len(batch.rewards),
            self.observation_space,
            self.action_space,
            device=self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=batch.num_columns,
            **self.rollout_buffer_kwargs,
        )

    def _fill(
        self, batch: Batch, buffer: RolloutBuffer, callback: BaseCallback, *, told: dict[str, Any]
    ) -> bool:
        """Add every step to the buffer, and call callbacks for it as if it were live."""
        values, final_values = self._values(batch)
        rewards = batch.rewards.copy()
        # The library's advantages have one kind of end: the value beyond a time limit is added to
        # the reward (https://github.com/DLR-RM/stable-baselines3/issues/633).
        rewards[batch.final_steps, batch.final_columns] += self.gamma * final_values
        dones = batch.terminated | batch.truncated  # [T, n]
        actions = batch.actions.reshape(*batch.rewards.shape, -1)  # [T, n, A]
        log_probs = torch.tensor(batch.log_probs)
        infos = _infos(batch)
        starts = np.zeros(batch.num_columns, np.float32)  # only its later rows count
        for t in range(len(rewards)):
            self.num_timesteps += batch.num_columns
            step = {"rewards": batch.rewards[t], "dones": dones[t], "infos": infos[t]}
            callback.update_locals({**told, **step, "actions": batch.actions[t], "n_steps": t})
            if not callback.on_step():
                return False
            observations = batch.observations[t]
            buffer.add(observations, actions[t], rewards[t], starts, values[t], log_probs[t])
            starts = dones[t]
        self._tell_episodes(batch)
        return True

    def _values(self, batch: Batch) -> tuple[torch.Tensor, Floats]:
        """Return the values of all observations [T, n], and of those beyond time limits [F]."""
        shape = batch.observations.shape
        flat = batch.observations.reshape(-1, *shape[2:])
        with torch.no_grad():
            values = self.policy.predict_values(self._tensor(flat)).reshape(shape[:2])
            final_values = self.policy.predict_values(self._tensor(batch.final_observations))
        return values, final_values.cpu().numpy().reshape(-1)

    def _tensor(self, observations: NDArray[Any]) -> torch.Tensor:
        return torch.tensor(observations, device=self.device)

    def _tell_episodes(self, batch: Batch) -> None:
        """Put finished episodes into the buffer of the library's logging."""
        elapsed_s = time.time() - self.start_time / 1e9
        for episode_return, length in zip(batch.returns, batch.lengths, strict=True):
            ended = {"r": float(episode_return), "l": int(length), "t": round(elapsed_s, 6)}
            self.ep_info_buffer.append(ended)

    def _log(self, batch: Batch) -> None:
        self.logger.record("nitro/actors", len(set(batch.actors.tolist())))
        self.logger.record("nitro/launched", batch.num_launched)


def _infos(batch: Batch) -> list[list[dict[str, Any]]]:
    """Return the infos of every step [T][n] for callbacks, with `Monitor`'s keys."""
    infos: list[list[dict[str, Any]]] = [
        [{} for _ in range(batch.num_columns)] for _ in range(len(batch.rewards))
    ]
    for step, column, observation in zip(
        batch.final_steps, batch.final_columns, batch.final_observations, strict=True
    ):
        infos[step][column] |= {
            "terminal_observation": observation,
            "TimeLimit.truncated": True,
        }
    for ending in endings(batch):
        infos[ending.step][ending.column]["episode"] = {
            "r": ending.episode_return,
            "l": ending.length,
        }
    return infos


def _require_supported(model: NitroPPO) -> None:
    """Refuse arguments that actors do not support.

    Raises:
        CommandError: An argument is not supported; names it.
    """
    if model.use_sde:
        raise CommandError(
            "use_sde: state-dependent exploration is not supported; its noise is not a Gaussian's"
        )
    if hasattr(model.policy, "lstm_actor"):
        raise CommandError(
            "policy: recurrent policies are not supported here; nitro train has them: "
            "--recurrent lstm"
        )
    space = model.observation_space
    if isinstance(space, spaces.Dict):
        raise CommandError(
            "observations: Dict observations are not supported; flatten them in the environment"
        )
    if model.env is not None and unwrap_vec_normalize(model.env) is not None:
        raise CommandError(
            "VecNormalize: actors would not see what it does; use normalize_observations=True"
        )
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise CommandError(f"observations: must be vectors of numbers, got {space}")
    extractor = type(model.policy.features_extractor)
    if extractor not in (FlattenExtractor, NormalisedObservations):
        raise CommandError(
            f"features_extractor_class: actors would not run {extractor.__name__}; put its layers "
            "into net_arch"
        )
    policy_of(model.policy, "sb3")
