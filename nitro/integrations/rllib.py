"""RLlib's algorithms with Nitro's actors in place of its own environment runners.

    from ray.rllib.algorithms.ppo import PPOConfig
    from nitro.integrations.rllib import NitroEnvRunner

    config = (
        PPOConfig()
        .environment("CartPole-v1", env_config={"nitro": {"actors": (2, 8)}})
        .env_runners(env_runner_cls=NitroEnvRunner, num_env_runners=0)
        .training(train_batch_size_per_learner=512)
        .rl_module(model_config=DefaultModelConfig(vf_share_layers=False))
    )

The runner is in the algorithm's own process, and requests a round of actors whenever RLlib requests
samples. Each round's number of actors is decided separately; RLlib trains on all samples.
Evaluation uses RLlib's own runners, on local environments.

Legend: `T` steps of a fragment, `n` columns, one for each environment of each actor.
"""

from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers.vector import TransformAction
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import SAMPLE_TIMER, WEIGHTS_SEQ_NO

from nitro.errors import CommandError
from nitro.integrations.choices import first_choice, require_no_mask
from nitro.pool.actor_pool import ActorPool
from nitro.pool.batch import Batch, EpisodePart
from nitro.pool.curvature import measure_curvature
from nitro.pool.external_job import require_counts, require_range
from nitro.pool.policy_maps import policy_of
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)

SETTINGS_KEY = "nitro"
"""Key of the pool's settings in RLlib's `env_config`; the rest belongs to the environment."""


class NitroEnvRunner(SingleAgentEnvRunner):  # type: ignore[misc] # the library has no types
    """An environment runner whose samples come from an `ActorPool`.

    The pool's settings are keyword arguments of `nitro.ActorPool`, in the algorithm's
    `env_config["nitro"]`; `actors` is `num_envs_per_env_runner` by default. The setting
    `measure_curvature: False` turns off the measurement for the scaling policies `nitro`,
    `marginal` and `kungfu`, which takes some milliseconds per round.

    A fragment has RLlib's `rollout_fragment_length` steps. With `auto`, the fewest actors of a
    round sample one training batch. An evaluation runner is RLlib's own.

    Raises:
        CommandError: A setting is not supported; names it.
    """

    env: Any
    """RLlib's environments of an evaluation."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        self.pool: ActorPool | None = None
        self._open = ExitStack()
        self._batch: Batch | None = None
        """The last batch; RLlib has learned from it when it requests the next."""
        self._measures = True
        # A runner in another process only reports spaces, because RLlib hides its errors. The
        # runner in the algorithm's process is made next, and refuses.
        if not config.in_evaluation and not kwargs.get("worker_index"):
            _require_supported(config)
            settings = pool_settings(config)
            self._measures = settings.pop("measure_curvature", True)
            self.pool = self._open.enter_context(ActorPool(config.env, **settings))
            kwargs["spaces"] = _spaces(self.pool.environment)
        try:
            if self.pool is not None:
                require_no_mask(self.pool.environment)
            super().__init__(config=config, **kwargs)
        except BaseException:
            self._open.close()  # without a runner, nothing else could end the job
            raise

    def make_env(self) -> None:
        """Create environments for an evaluation; actors have their own."""
        if self.pool is None:
            self.config.env_config = _own(self.config.env_config)
            super().make_env()
            first = first_choice(self.env.single_action_space)
            if np.any(first):  # RLlib numbers actions from 0
                self.env = TransformAction(self.env, lambda actions: np.asarray(actions) + first)
            return
        self.num_envs = self.config.num_envs_per_env_runner

    def assert_healthy(self) -> None:
        """Check that the runner was fully constructed."""
        if self.pool is None:
            super().assert_healthy()
        elif self.module is None:
            raise CommandError("the algorithm has no RLModule, so there is no policy to roll out")

    def sample(self, **kwargs: Any) -> list[SingleAgentEpisode]:
        """Return the samples of a round of actors, as parts of episodes.

        Raises:
            CommandError: RLlib's request does not fit a round of actors, or the job has ended.
        """
        if self.pool is None:
            if not self.config.in_evaluation:
                _require_supported(self.config)
            found: list[SingleAgentEpisode] = super().sample(**kwargs)
            return found
        asked = [name for name, value in kwargs.items() if value and name != "explore"]
        if asked or kwargs.get("explore") is False:
            what = ", ".join(asked) or "explore=False"
            raise CommandError(f"{what}: a round of Nitro's actors is of fragments that explore")
        policy = policy_of(self.module, "rllib")
        if self._measures and self._batch is not None:
            self.pool.report(curvature=measure_curvature(policy, self._batch))
        with self.metrics.log_time(SAMPLE_TIMER):
            self._batch = batch = self.pool.collect(policy)
        self._log(batch)
        outputs = self._outputs(batch)
        return [self._episode(part, outputs) for part in batch.episodes()]

    def get_metrics(self) -> Any:
        """Return the metrics since the last call."""
        return super().get_metrics() if self.pool is None else self.metrics.reduce()

    def stop(self) -> None:
        """End the pool's job."""
        self._open.close()
        super().stop()

    def _outputs(self, batch: Batch) -> NDArray[np.float32]:
        """Return the inputs [T, n, H] of the action distribution, for RLlib's losses."""
        flat = torch.tensor(batch.flat().observations, device=self._device)
        with torch.no_grad():
            found = self.module.forward_exploration({Columns.OBS: flat})
        outputs: NDArray[np.float32] = found[Columns.ACTION_DIST_INPUTS].cpu().numpy()
        return outputs.reshape(*batch.rewards.shape, -1)

    def _episode(self, part: EpisodePart, outputs: NDArray[np.float32]) -> SingleAgentEpisode:
        steps = len(part.rewards)
        at = slice(part.first_step, part.first_step + steps)
        # RLlib requires an observation after a terminal step, but does not use it.
        last = part.observations[-1] if part.last_observation is None else part.last_observation
        observation_space, action_space = self.spaces[INPUT_ENV_SINGLE_SPACES]
        return SingleAgentEpisode(
            observations=np.concatenate([part.observations, last[None]]),
            actions=part.actions,
            rewards=part.rewards,
            infos=[{} for _ in range(steps + 1)],
            terminated=part.terminated,
            truncated=part.truncated,
            observation_space=observation_space,
            action_space=action_space,
            extra_model_outputs={
                Columns.ACTION_LOGP: part.log_probs,
                Columns.ACTION_DIST_INPUTS: outputs[at, part.column],
                WEIGHTS_SEQ_NO: np.full(steps, self._weights_seq_no),
            },
            len_lookback_buffer=0,  # by default everything would be history, and nothing data
        ).to_numpy()

    def _log(self, batch: Batch) -> None:
        """Log the metrics of RLlib's own runners, and Nitro's number of actors."""
        self.num_env_steps_sampled_lifetime += batch.num_steps
        self.metrics.log_value(WEIGHTS_SEQ_NO, self._weights_seq_no, window=1)
        self.metrics.log_value("nitro_actors", len(set(batch.actors.tolist())), window=1)
        self._increase_sampled_metrics(batch.num_steps, len(batch.returns))
        for episode_return, length in zip(batch.returns, batch.lengths, strict=True):
            self._log_episode_metrics(int(length), float(episode_return), 0.0)


def pool_settings(config: Any) -> dict[str, Any]:
    """Return the keyword arguments of an algorithm's `ActorPool`.

    Raises:
        CommandError: A setting belongs elsewhere.
    """
    settings = dict(config.env_config.get(SETTINGS_KEY, {}))
    if "fragment" in settings:
        raise CommandError("nitro.fragment: is RLlib's rollout_fragment_length; set that")
    if "policy_map" in settings:
        raise CommandError("nitro.policy_map: is that of RLlib's default model; leave it out")
    # Passed explicitly: the pool's own default differs.
    actors = settings.setdefault("actors", config.num_envs_per_env_runner)
    fragment = config.rollout_fragment_length
    if fragment == "auto":
        side_by_side = settings.get("envs_per_actor", 1)
        require_range(actors)
        require_counts({"envs_per_actor": side_by_side})
        columns = min(_range(actors)) * side_by_side
        # Rounded up: RLlib repeats the request while a sample is missing.
        fragment = max(1, -(-config.total_train_batch_size // columns))
    own = _own(config.env_config)
    return {**settings, "fragment": fragment, **({"env_kwargs": own} if own else {})}


def _range(actors: Any) -> tuple[int, ...]:
    return (actors,) if isinstance(actors, int) else tuple(actors)


def _own(env_config: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's part of RLlib's `env_config`."""
    return {name: value for name, value in env_config.items() if name != SETTINGS_KEY}


def _spaces(environment: EnvironmentSpec) -> dict[str, tuple[gymnasium.Space[Any], ...]]:
    """Return an environment's spaces by RLlib's names."""
    shape = environment.observation.shape
    both = (spaces.Box(-np.inf, np.inf, shape, np.float32), _action_space(environment))
    return dict.fromkeys((INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, DEFAULT_MODULE_ID), both)


def _action_space(environment: EnvironmentSpec) -> gymnasium.Space[Any]:
    action = environment.action
    if isinstance(action, ContinuousActionSpec):
        low, high = (np.array(bound, np.float32) for bound in (action.low, action.high))
        return spaces.Box(low, high, dtype=np.float32)
    if isinstance(action, DiscreteActionSpec):
        return spaces.Discrete(action.n)
    return spaces.MultiDiscrete(np.array(action.num_choices, np.int64))


def _require_supported(config: Any) -> None:
    """Refuse settings that actors do not support.

    Raises:
        CommandError: A setting is not supported; names it.
    """
    if not isinstance(config.env, str):
        raise CommandError("environment: must be an environment's name, which actors know, too")
    if config.num_env_runners:
        raise CommandError(
            "num_env_runners: must be 0, as one runner asks for all actors, got "
            f"{config.num_env_runners}; set their number by env_config"
            f'={{"{SETTINGS_KEY}": {{"actors": (8, 64)}}}}'
        )
    if config.is_multi_agent:
        raise CommandError("multi_agent: actors roll out one agent's policy")
    for name in ("env_to_module_connector", "module_to_env_connector"):
        if getattr(config, f"_{name}") is not None:
            raise CommandError(
                f"{name}: actors do not run connectors; use a wrapper of the environment instead"
            )
    _require_supported_policy(config)


def _require_supported_policy(config: Any) -> None:
    if config.model_config.get("use_lstm"):
        raise CommandError(
            "use_lstm: actors do not run RLlib's recurrent networks; nitro train has recurrent "
            "policies: --recurrent lstm"
        )
    if config.explore is False:
        raise CommandError("explore: must be True, as a round of Nitro's actors explores")
    if not config.normalize_actions:
        raise CommandError("normalize_actions: must be True, as actors map [-1, 1] to the bounds")
