"""One rollout: a fragment of sampled steps, or one deterministic episode.

Legend: `T` steps, `B` environments side by side.

Invariant: a rollout depends on its task and the policy's weights alone, not on what the process
did before, so that a repeated rollout is the same rollout to the last bit.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from gymnasium.spaces import Box, Discrete

from functions.actor.fragment import Fragment, noise_generator
from shared.contracts import RolloutTask
from shared.distributions import Action
from shared.envs import Env
from shared.policy import ActionScale, FragmentSampler, NumpyPolicy
from shared.trajectory import Episode, Trajectory

MAX_EVALUATION_STEPS = 65_536
"""Where an evaluation episode of an environment without a time limit is cut."""

Translator = Callable[[Action], Iterable[object]]


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message names the environment and the step."""


def sample_fragment(task: RolloutTask, envs: Sequence[Env], policy: NumpyPolicy) -> Trajectory:
    """Take `task.steps` sampled steps, shared equally among the environments.

    Every fragment starts with fresh episodes. An episode that ends inside is followed by another.

    Args:
        task: What to do; its seed decides everything random.
        envs: `task.num_envs` environments of the same kind.
        policy: Samples the actions.

    Raises:
        RolloutError: The policy does not fit the environment, the environment raised, or an
            observation, action or reward is not finite.
    """
    num_steps, remainder = divmod(task.steps, task.num_envs)
    if remainder or len(envs) != task.num_envs:
        raise RolloutError(
            f"{task.steps} steps cannot be shared by num_envs = {task.num_envs}; "
            f"{len(envs)} environments were given"
        )
    translate = _translator(task.env.env_id, envs[0], policy, num_envs=task.num_envs)
    rng = noise_generator(task.seed)
    sampler = policy.sampler(num_steps=num_steps, num_envs=task.num_envs, rng=rng)
    fragment = Fragment(num_steps, envs, observation_size=policy.observation_size)
    # What is not finite is reported once, by name and step, instead of as warnings.
    with np.errstate(all="ignore"):
        _roll_out(task, fragment, sampler, translate, num_steps=num_steps)
        log_prob = sampler.log_prob()
    _check_finite(task.env.env_id, {"log_prob": log_prob})
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
    )


def evaluate_episode(task: RolloutTask, env: Env, policy: NumpyPolicy) -> Episode:
    """Play one episode with the most likely action at every step; `task.steps` plays no part.

    Raises:
        RolloutError: As for `sample_fragment`.
    """
    translate = _translator(task.env.env_id, env, policy, num_envs=1)
    observation = np.empty((1, policy.observation_size), np.float32)
    episode_return, length, ended = 0.0, 0, False
    with np.errstate(all="ignore"):
        try:
            observation[0] = env.reset(seed=task.seed)[0]
            while not ended and length < MAX_EVALUATION_STEPS:
                (action,) = translate(policy.mode(observation))
                observation[0], reward, terminated, truncated, _ = env.step(action)
                episode_return += float(reward)
                length += 1
                ended = bool(terminated or truncated)
                if not (math.isfinite(episode_return) and np.isfinite(observation).all()):
                    raise ValueError(f"reward {reward} or an observation is not finite")
        except Exception as error:  # an environment may raise anything
            raise _failure(task, length, error) from error
    return Episode(
        job_id=task.job_id,
        round=task.round,
        actor_index=task.actor_index,
        policy_version=task.policy_version,
        episode_return=episode_return,
        length=length,
    )


def _roll_out(
    task: RolloutTask,
    fragment: Fragment,
    sampler: FragmentSampler,
    translate: Translator,
    *,
    num_steps: int,
) -> None:
    """Fill the fragment and the sampler's actions; what is not finite goes before what it broke."""
    failure: Exception | None = None
    # Looked up once: this loop is what an actor is paid for.
    act, step, observation, action = (
        sampler.act,
        fragment.step,
        fragment.observation,
        sampler.action,
    )
    try:
        fragment.start(seed=task.seed)
        for t in range(num_steps):
            act(t, observation[t])
            step(translate(action[t]))
    except Exception as error:  # an environment may raise anything
        failure = error
    seen = {
        "observation": fragment.observation,
        "action": sampler.action,
        "reward": fragment.reward,
    }
    _check_finite(task.env.env_id, seen)
    if failure is not None:
        raise _failure(task, fragment.num_done, failure) from failure


def _failure(task: RolloutTask, step: int, error: Exception) -> RolloutError:
    return RolloutError(f"{task.env.env_id} failed at step {step}: {error!r}")


def _check_finite(env_id: str, arrays: Mapping[str, Action]) -> None:
    """Refuse NaN and infinity, naming what came first: the later ones only follow from it."""
    first = [
        (int(np.argwhere(~np.isfinite(array))[0, 0]), name)
        for name, array in arrays.items()
        if not np.isfinite(array).all()
    ]
    if first:
        step, name = min(first, key=lambda bad: bad[0])
        raise RolloutError(f"{env_id}: {name} is not finite at step {step}; rollout dropped")


def _translator(env_id: str, env: Env, policy: NumpyPolicy, *, num_envs: int) -> Translator:
    """Return what turns sampled actions [B, *act] into one action per environment.

    Raises:
        RolloutError: The policy does not fit the environment.
    """
    observation, action = env.observation_space, env.action_space
    fits = observation.shape == (policy.observation_size,)
    if fits and isinstance(action, Discrete) and policy.distribution.num_choices == action.n:
        start = int(action.start)
        return lambda sampled: [start + choice for choice in sampled.tolist()]
    if fits and isinstance(action, Box) and policy.action_shape == action.shape:
        # Bounds of one row per environment: with equal shapes NumPy need not broadcast.
        bounds = (np.tile(bound, (num_envs, 1)) for bound in (action.low, action.high))
        return ActionScale(*bounds).apply
    raise RolloutError(
        f"{env_id} has observations {observation} and actions {action}, but the policy takes "
        f"{policy.observation_size} numbers and returns actions of shape {policy.action_shape} "
        f"(choices: {policy.distribution.num_choices})"
    )
