"""One rollout: a fragment of sampled steps, or one deterministic episode.

Legend: `T` steps, `B` environments side by side.

Invariant: a rollout depends only on its task and the policy's weights, not on earlier work of the
process, so that a repeated rollout is bit-identical.
"""

import contextlib
import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from functions.actor.dropped_episodes import MAX_DROPPED_EPISODES, DroppedEpisodes
from functions.actor.errors import DIVERGED, RolloutError, environment_frames
from functions.actor.finite import first_not_finite
from functions.actor.fragment import Fragment
from functions.actor.seeds import noise_generator
from functions.actor.watchdog import Watchdog
from shared.contracts.rollouts import RolloutTask
from shared.environments.agents import agents_of, choose
from shared.environments.building import Env
from shared.environments.games import games_of, whole_games
from shared.environments.interface import what_went_wrong
from shared.environments.spaces import checked_observation
from shared.environments.state.replay import Standing, seed_generators
from shared.policy.action_mapping import action_map
from shared.policy.distributions import Action
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.trajectory import Episode, Trajectory

MAX_EVALUATION_STEPS = 65_536
"""Steps at which an evaluation episode is cut; a cut game counts with its score so far."""

Translator = Callable[[Action], Iterable[object]]


def sample_fragment(
    task: RolloutTask,
    envs: Sequence[Env],
    policy: NumpyPolicy,
    *,
    starts: Sequence[bytes] = (),
    standing: Sequence[Standing | None] = (),
    watchdog: Watchdog | None = None,
) -> Trajectory:
    """Take `task.steps` sampled steps, shared equally among the environments.

    Episodes resume from `starts`, or begin with a reset. When an episode ends, the next one begins.
    An episode with a non-finite value is dropped, and its steps are sampled again.

    Args:
        task: The task; its seed determines everything random.
        envs: `task.num_envs` environments of the same kind.
        policy: Samples the actions.
        starts: The saved episodes to resume; an empty one starts over.
        standing: Position of each environment; None if it must be reset first.
        watchdog: Notices a step or reset that hangs.

    Raises:
        RolloutError: The policy does not fit the environment or is not finite, the environment
            raised or violated its spaces, or too many episodes were dropped.
    """
    num_steps = _steps_of_each(task, envs)
    env_id = task.env.env_id
    translate = _translator(env_id, envs[0], policy, num_envs=task.num_envs)
    rng = noise_generator(task.seed)
    sampler = FragmentSampler(policy, num_steps=num_steps, num_envs=task.num_envs, rng=rng)
    fragment = Fragment(
        num_steps,
        envs,
        seed=task.seed,
        horizon=task.horizon,
        continues=task.continues,
        replay_steps=task.replay_steps,
        standing=standing,
        discount=task.discount,
        state=sampler.state,
    )
    dropped = DroppedEpisodes(
        env_id,
        fragment,
        sampler,
        seed=task.seed,
        translate=_translator(env_id, envs[0], policy, num_envs=1),
    )
    # Non-finite numbers are reported once, by name and step, instead of as warnings.
    watch = _watching(watchdog, env_id, lambda: fragment.progress)
    with np.errstate(all="ignore"), watch:
        _roll_out(task, envs[0], fragment, sampler, dropped, translate, starts)
        log_prob = sampler.log_prob()
    _check_policy(env_id, action=sampler.action, log_prob=log_prob)
    snapshots = fragment.leave()
    remembered = {"recurrent_state": fragment.first_state} if policy.spec.recurrent else {}
    return Trajectory(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        policy_version=task.policy_version,
        observation=fragment.observation,
        final_observation=fragment.final_observation,
        action=sampler.action,
        reward=fragment.reward,
        terminated=fragment.terminated,
        truncated=fragment.truncated,
        log_prob=log_prob,
        episode_returns=np.array(fragment.episode_returns, np.float32),
        episode_lengths=np.array(fragment.episode_lengths, np.int32),
        dropped_episodes=dropped.count,
        begun_anew=fragment.begun_anew,
        lost_replays=fragment.lost_replays,
        snapshots=snapshots,
        earlier_returns=fragment.earlier_returns,
        **remembered,
    )


def _check_policy(env_id: str, **arrays: NDArray[Any]) -> None:
    """Blame the policy for non-finite values: the environment's values are all finite by now."""
    bad = first_not_finite(arrays)
    if bad is not None:
        step, name = bad
        raise RolloutError(
            f"{env_id}: {name} is not finite at step {step} (policy diverged); rollout dropped"
        )


def _steps_of_each(task: RolloutTask, envs: Sequence[Env]) -> int:
    num_steps, remainder = divmod(task.steps, task.num_envs)
    if remainder or len(envs) != task.num_envs:
        raise RolloutError(
            f"{task.steps} steps cannot be shared by num_envs = {task.num_envs}; "
            f"{len(envs)} environments were given"
        )
    return num_steps


def evaluate_episode(
    task: RolloutTask, env: Env, policy: NumpyPolicy, *, watchdog: Watchdog | None = None
) -> Episode:
    """Play one episode with the most likely action at every step; `task.steps` has no effect.

    An episode with a non-finite value is dropped and replaced.

    Raises:
        RolloutError: As for `sample_fragment`.
    """
    play = Play(task, env, policy)
    play.whole(seed=task.seed, watchdog=watchdog)
    return Episode(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        policy_version=task.policy_version,
        episode_return=play.episode_return,
        length=play.length,
        dropped_episodes=play.num_dropped,
    )


def _watching(
    watchdog: Watchdog | None, env_id: str, progress: Callable[[], object]
) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if watchdog is None else watchdog.watching(env_id, progress)


class Play:
    """Episodes with the most likely actions, played until one is finite throughout."""

    def __init__(
        self,
        task: RolloutTask,
        env: Env,
        policy: NumpyPolicy,
        *,
        most_steps: int | None = None,
        keeps: bool = False,
    ) -> None:
        """Play no episode yet.

        Args:
            task: Names the environment.
            env: An environment of this kind.
            policy: Chooses the actions.
            most_steps: Steps at which an episode is cut; None means `MAX_EVALUATION_STEPS`.
            keeps: Whether to keep the observations.

        Raises:
            RolloutError: The policy does not fit the environment.
        """
        self._task = task
        self._env = whole_games(env)
        self._agents = agents_of(env)
        self._policy = policy
        self._translate = _translator(task.env.env_id, env, policy, num_envs=len(self._agents))
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
            RolloutError: As for `sample_fragment`.
        """
        env_id = self._task.env.env_id
        watch = _watching(watchdog, env_id, lambda: self.progress)
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
                raise _failure(self._task, self._env, self.length, error) from error
        if self.broken is not None:
            raise RolloutError(
                f"{env_id}: {self.broken}, as in {self.num_dropped} episodes before; "
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
            _check_diverged(self._task.env.env_id, row, mode, step=self.length)
            (action,) = self._translate(mode)
            given, reward, terminated, truncated, _ = env.step(action)
            observation = _seen(given, space)
            self.episode_return += float(reward)
            self.length += 1
            self.progress += 1
            ended = bool(terminated or truncated)
            if not math.isfinite(self.episode_return):
                self.broken = f"reward is not finite at step {self.length - 1}"
            elif not np.isfinite(observation).all():
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
            _check_diverged(self._task.env.env_id, rows, mode, step=self.length)
            actions = [*self._translate(mode)]
            choose(envs, actions)
            steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            rows = np.stack([_seen(given, space) for given, *_ in steps])
            self.episode_return += fmean(float(reward) for _, reward, *_ in steps)
            self.length += 1
            self.progress += 1
            ended = any(terminated or truncated for _, _, terminated, truncated, _ in steps)
            if not (math.isfinite(self.episode_return) and np.isfinite(rows).all()):
                self.broken = f"reward or observation is not finite at step {self.length - 1}"


def _seen(observation: object, space: Space[Any]) -> NDArray[np.float32]:
    """Return an observation in the policy's type: values beyond float32 become infinite."""
    return checked_observation(observation, space).astype(np.float32)


def _roll_out(
    task: RolloutTask,
    env: Env,
    fragment: Fragment,
    sampler: FragmentSampler,
    dropped: DroppedEpisodes,
    translate: Translator,
    starts: Sequence[bytes],
) -> None:
    """Fill the fragment and the sampler's actions."""
    # Looked up once: an actor spends its billed time in this loop.
    act, step, broken = sampler.act, fragment.step, fragment.broken
    observation, action = fragment.observation, sampler.action
    num_steps = len(fragment.reward)
    try:
        fragment.start(starts)
        for t in range(num_steps):
            act(t, observation[t])
            step(translate(action[t]))
            if broken:
                dropped.fill_again()
        while fragment.is_last_broken():
            dropped.fill_again()
    except RolloutError:
        raise
    except Exception as error:  # an environment may raise anything
        t = min(fragment.num_done, num_steps - 1)
        _check_diverged(task.env.env_id, observation[t], action[t], step=t)
        raise _failure(task, env, fragment.num_done, error) from error


def _failure(task: RolloutTask, env: Env, step: int, error: Exception) -> RolloutError:
    where = environment_frames(traceback.extract_tb(error.__traceback__))
    why = what_went_wrong(error, env)
    return RolloutError(f"{task.env.env_id} failed at step {step}: {why}{where}")


def _check_diverged(env_id: str, observation: NDArray[Any], action: Action, *, step: int) -> None:
    """Refuse non-finite actions [B, *act] for finite observations [B, *obs]."""
    if np.isfinite(action).all():
        return
    seen, taken = (
        np.isfinite(rows).reshape(len(rows), -1).all(axis=1) for rows in (observation, action)
    )
    if (seen & ~taken).any():
        raise RolloutError(f"{env_id}: {DIVERGED.format(step=step)}; rollout dropped")


def _translator(env_id: str, env: Env, policy: NumpyPolicy, *, num_envs: int) -> Translator:
    """Return a function from sampled actions [B, *act] to one action per environment.

    Raises:
        RolloutError: The policy does not fit the environment.
    """
    observation, action = env.observation_space, env.action_space
    num_choices = policy.distribution.num_choices
    fits = observation.shape == policy.observation_shape
    if fits and isinstance(action, Discrete) and num_choices == action.n:
        start = int(action.start)
        return lambda sampled: sampled + start  # items are NumPy scalars, as in a sampled action
    if fits and isinstance(action, MultiDiscrete) and num_choices == tuple(action.nvec.tolist()):
        starts = action.start
        return lambda sampled: sampled + starts
    if fits and isinstance(action, Box) and policy.action_shape == action.shape:
        # Bounds of one row per environment: with equal shapes NumPy need not broadcast.
        bounds = (np.tile(bound, (num_envs, 1)) for bound in (action.low, action.high))
        return action_map(policy.action_mapping, *bounds)
    raise RolloutError(
        f"{env_id} has observations {observation} and actions {action}, but the policy takes "
        f"observations of shape {policy.observation_shape} and returns actions of shape "
        f"{policy.action_shape} (choices: {num_choices})"
    )
