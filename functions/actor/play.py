"""Episodes with the most likely action at every step."""

import math
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from functions.actor.dropped_episodes import MAX_DROPPED_EPISODES
from functions.actor.errors import RolloutError, rollout_failure
from functions.actor.finite import all_finite, check_diverged
from functions.actor.translation import translator
from functions.actor.watchdog import Watchdog, watched
from shared.environments.agents import agents_of, choose
from shared.environments.building import Env
from shared.environments.games import games_of, whole_games
from shared.environments.spaces import checked_observation
from shared.environments.state.replay import seed_generators
from shared.policy.numpy_policy import NumpyPolicy

MAX_EVALUATION_STEPS = 65_536
"""Steps at which an evaluation episode is cut; a cut game counts with its score so far."""


class Play:
    """Episodes with the most likely actions, played until one is finite throughout."""

    def __init__(
        self,
        env_id: str,
        env: Env,
        policy: NumpyPolicy,
        *,
        most_steps: int | None = None,
        keeps: bool = False,
    ) -> None:
        """Play no episode yet.

        Args:
            env_id: Its name, for messages.
            env: Where to play.
            policy: Chooses the actions.
            most_steps: Steps at which an episode is cut; None means `MAX_EVALUATION_STEPS`.
            keeps: Whether to keep the observations.

        Raises:
            RolloutError: The policy does not fit the environment.
        """
        self._env_id = env_id
        self._env = whole_games(env)
        self._agents = agents_of(env)
        self._policy = policy
        self._translate = translator(env_id, env, policy, num_envs=len(self._agents))
        self._most_steps = most_steps or MAX_EVALUATION_STEPS
        self._keeps = keeps
        self.observed: list[NDArray[np.float32]] = []
        """Observations before each action of the latest episode, # [1, *obs] each, if kept."""
        self.episode_return = 0.0
        self.length = 0
        self.broken: str | None = None
        """The first value of the latest episode that was not finite; None without any."""
        self.num_dropped = 0
        self.progress = 0
        """Number of finished steps and resets."""

    def whole(self, *, seed: int, watchdog: Watchdog | None) -> None:
        """Play episodes until everything in one is finite.

        Raises:
            RolloutError: As for `functions.actor.rollout.sample_fragment`.
        """
        watch = watched(watchdog, self._env_id, lambda: self.progress)
        with np.errstate(all="ignore"), watch:
            try:
                through = self._through if len(self._agents) == 1 else self._together
                through(seed=seed)
                while self.broken is not None and self.num_dropped < MAX_DROPPED_EPISODES:
                    self.num_dropped += 1
                    through(seed=None)
            except RolloutError:
                raise
            except Exception as error:  # an environment may raise anything
                raise rollout_failure(self._env_id, self._env, self.length, error) from error
        if self.broken is not None:
            raise RolloutError(
                f"{self._env_id}: {self.broken}, as in {self.num_dropped} episodes before; "
                "episode dropped"
            )

    def _through(self, *, seed: int | None) -> None:
        """Play one episode to its end, or until a value is not finite.

        Raises:
            RolloutError: An action is not finite although its observation is.
        """
        env, space = self._env, self._env.observation_space
        mode_of = self._policy.modes(1, self._policy.new_state(1))
        self.episode_return, self.length, self.broken = 0.0, 0, None
        self.observed = observed = list[NDArray[np.float32]]()
        if seed is not None:
            seed_generators(seed)
        observation, ended = _seen(env.reset(seed=seed)[0], space), False
        self.progress += 1
        while not ended and self.broken is None and self.length < self._most_steps:
            row = observation[np.newaxis]
            if self._keeps:
                observed.append(row)
            mode = mode_of(row)
            check_diverged(self._env_id, row, mode, step=self.length)
            (action,) = self._translate(mode)
            given, reward, terminated, truncated, _ = env.step(action)
            observation = _seen(given, space)
            self.episode_return += float(reward)
            self.length += 1
            self.progress += 1
            ended = bool(terminated or truncated)
            if not math.isfinite(self.episode_return):
                self.broken = f"reward is not finite at step {self.length}"
            elif not all_finite(observation):
                self.broken = f"observation is not finite at step {self.length}"
        games = games_of(env)
        if games is not None and not ended:
            self.episode_return = games.score

    def _together(self, *, seed: int | None) -> None:
        """Play one episode of several agents likewise; its return is their mean."""
        envs, space = self._agents, self._agents[0].observation_space
        mode_of = self._policy.modes(len(envs), self._policy.new_state(len(envs)))
        self.episode_return, self.length, self.broken = 0.0, 0, None
        if seed is not None:
            seed_generators(seed)
        rows, ended = np.stack([_seen(env.reset(seed=seed)[0], space) for env in envs]), False
        self.progress += 1
        while not ended and self.broken is None and self.length < self._most_steps:
            mode = mode_of(rows)
            check_diverged(self._env_id, rows, mode, step=self.length)
            actions = [*self._translate(mode)]
            choose(envs, actions)
            steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            rows = np.stack([_seen(given, space) for given, *_ in steps])
            self.episode_return += fmean(float(reward) for _, reward, *_ in steps)
            self.length += 1
            self.progress += 1
            ended = any(terminated or truncated for _, _, terminated, truncated, _ in steps)
            if not (math.isfinite(self.episode_return) and all_finite(rows)):
                self.broken = f"reward or observation is not finite at step {self.length}"


def _seen(observation: object, space: Space[Any]) -> NDArray[np.float32]:
    """Return an observation in the policy's type: values beyond float32 become infinite."""
    return checked_observation(observation, space).astype(np.float32)
