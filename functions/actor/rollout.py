"""One rollout: a fragment of sampled steps, or one deterministic episode.

Legend: `T` steps, `B` environments side by side.

Invariant: a rollout depends only on its task and the policy's weights, not on earlier work of the
process, so that a repeated rollout is bit-identical.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from functions.actor.dropped_episodes import DroppedEpisodes
from functions.actor.errors import RolloutError, rollout_failure
from functions.actor.finite import check_diverged, first_not_finite
from functions.actor.fragment import Fragment
from functions.actor.handover import Handover
from functions.actor.play import Play
from functions.actor.seeds import noise_generator
from functions.actor.translation import Translator, translator
from functions.actor.watchdog import Watchdog, watched
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import Env
from shared.environments.state.replay import Standing
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.numpy_policy import NumpyPolicy
from shared.trajectory.trajectory import Episode, Trajectory


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
    translate = translator(env_id, envs[0], policy, num_envs=task.num_envs)
    rng = noise_generator(task.seed)
    sampler = FragmentSampler(policy, num_steps=num_steps, num_envs=task.num_envs, rng=rng)
    fragment = Fragment(
        num_steps,
        envs,
        seed=task.seed,
        horizon=task.horizon,
        handover=Handover(
            envs,
            continues=task.continues,
            replay_steps=task.replay_steps,
            standing=standing,
            discount=task.discount,
            state=sampler.state,
        ),
    )
    dropped = DroppedEpisodes(
        env_id,
        fragment,
        sampler,
        seed=task.seed,
        translate=translator(env_id, envs[0], policy, num_envs=1),
    )
    # Non-finite numbers are reported once, by name and step, instead of as warnings.
    watch = watched(watchdog, env_id, lambda: fragment.progress)
    with np.errstate(all="ignore"), watch:
        _roll_out(task, envs[0], fragment, sampler, dropped, translate, starts)
        log_prob = sampler.log_prob()
    _check_policy(env_id, action=sampler.action, log_prob=log_prob)
    return _trajectory(task, fragment, sampler, log_prob, dropped)


def _trajectory(
    task: RolloutTask,
    fragment: Fragment,
    sampler: FragmentSampler,
    log_prob: NDArray[np.float32],
    dropped: DroppedEpisodes,
) -> Trajectory:
    snapshots = fragment.leave()  # first: an episode that cannot be left begins anew
    state = fragment.first_state
    remembered = {"recurrent_state": state} if state.size else {}
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
        begun_anew=fragment.handover.begun_anew,
        lost_replays=fragment.handover.lost_replays,
        snapshots=snapshots,
        earlier_returns=tuple(fragment.handover.earlier_returns),
        **remembered,
    )


def _check_policy(env_id: str, **arrays: NDArray[Any]) -> None:
    """Blame the policy for non-finite values: the environment's values are all finite by now."""
    bad = first_not_finite(arrays)
    if bad is not None:
        step, name = bad
        raise RolloutError(
            f"{env_id}: {name} is not finite at step {step + 1} (policy diverged); rollout dropped"
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
    play = Play(task.env.env_id, env, policy)
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
        check_diverged(task.env.env_id, observation[t], action[t], step=t)
        raise rollout_failure(task.env.env_id, env, fragment.num_done, error) from error
