"""Environments by registered name: building one, and saying what it looks like.

Only the actor image has a simulator. The learner knows an environment by the `EnvironmentSpec` that
`describe` returns; whatever Nitro cannot train on is refused here, before a job starts.
"""

import difflib
import importlib.metadata
import re
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import registry
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shared.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.job_spec import EnvironmentRef, EnvKwarg
from shared.mujoco_memo import remember_answers

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say

_REFUSED_KWARGS = {
    "id": "the environment is named by env_id",
    "disable_env_checker": "the checker is always off",
    "render_mode": "actors never draw",
}
_UNEXPECTED_KWARG = re.compile(r"unexpected keyword argument '(\w+)'")
_PLAIN_WRAPPERS: frozenset[type] = frozenset({TimeLimit, OrderEnforcing, PassiveEnvChecker})


class UnsupportedEnvironment(ValueError):  # noqa: N818 - it names what is wrong, as KeyError does
    """An environment that does not exist, cannot be built or cannot be trained on."""


class StepLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts episodes at a number of steps, like Gymnasium's `TimeLimit`, at the least cost per step.

    Stands directly on the bare environment, in place of the wrappers `gymnasium.make` adds.
    """

    def __init__(self, env: Env, *, max_episode_steps: int | None) -> None:
        super().__init__(env)
        self._step = env.step
        self._limit = float("inf") if max_episode_steps is None else max_episode_steps
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._elapsed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the bare environment; truncate at the limit, also when it terminates there."""
        observation, reward, terminated, truncated, info = self._step(action)
        self._elapsed += 1
        return observation, reward, terminated, truncated or self._elapsed >= self._limit, info


def make_environment(ref: EnvironmentRef) -> Env:
    """Return the environment, with as little as possible between its `step` and the caller.

    Raises:
        UnsupportedEnvironment: The name is unknown, a keyword argument is wrong, a package is
            missing, or observations or actions are of a kind Nitro cannot train on.
    """
    made = _made(ref)
    try:
        _observation_spec(ref.env_id, made.observation_space)
        _action_spec(ref.env_id, made.action_space)
    except UnsupportedEnvironment:
        made.close()
        raise
    wrappers = _wrapper_types(made)
    if len(set(wrappers)) < len(wrappers) or not _PLAIN_WRAPPERS.issuperset(wrappers):
        return made  # more than one time limit, or a change of observations, rewards or ends
    bare = made.unwrapped
    remember_answers(bare)
    return StepLimit(bare, max_episode_steps=_max_episode_steps(made))


def describe(ref: EnvironmentRef) -> EnvironmentSpec:
    """Return what the learner needs to know of the environment.

    Raises:
        UnsupportedEnvironment: As for `make_environment`.
    """
    env = _made(ref)
    try:
        return EnvironmentSpec(
            env_id=ref.env_id,
            observation=_observation_spec(ref.env_id, env.observation_space),
            action=_action_spec(ref.env_id, env.action_space),
            max_episode_steps=_max_episode_steps(env),
            versions=_versions(env),
        )
    finally:
        env.close()


def _made(ref: EnvironmentRef) -> Env:
    """Return what `gymnasium.make` gives, or say what is wrong with the reference."""
    if ref.env_id not in registry:
        near = difflib.get_close_matches(ref.env_id, sorted(registry), n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UnsupportedEnvironment(f"env_id {ref.env_id!r} is no registered environment{hint}")
    _check_kwargs(ref.env_kwargs)
    try:
        return gymnasium.make(ref.env_id, disable_env_checker=True, **_make_kwargs(ref))
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UnsupportedEnvironment(
            f"env_id {ref.env_id!r} needs a package that is not installed: {error}"
        ) from error
    except Exception as error:  # an environment's constructor may raise anything
        raise UnsupportedEnvironment(_construction_message(ref, error)) from error


def _make_kwargs(ref: EnvironmentRef) -> dict[str, Any]:
    """Return the keyword arguments, untyped: `gymnasium.make` passes them on as they are."""
    return dict(ref.env_kwargs)


def _check_kwargs(kwargs: dict[str, EnvKwarg]) -> None:
    for name, reason in _REFUSED_KWARGS.items():
        if name in kwargs:
            raise UnsupportedEnvironment(f"env_kwargs.{name} is not allowed: {reason}")
    limit = kwargs.get("max_episode_steps", 1)
    if type(limit) is not int or limit < 1:
        raise UnsupportedEnvironment(
            f"env_kwargs.max_episode_steps is {limit!r}, expected a whole number from 1"
        )


def _construction_message(ref: EnvironmentRef, error: Exception) -> str:
    unexpected = _UNEXPECTED_KWARG.search(str(error))
    if isinstance(error, TypeError) and unexpected:
        return f"env_kwargs.{unexpected.group(1)} is no keyword argument of {ref.env_id}"
    given = f" with env_kwargs {ref.env_kwargs}" if ref.env_kwargs else ""
    return f"env_id {ref.env_id!r} cannot be built{given}: {error!r}"


def _wrapper_types(env: Env) -> list[type]:
    """Return the wrappers' types, outermost first."""
    types: list[type] = []
    while isinstance(env, gymnasium.Wrapper):
        types.append(type(env))
        env = env.env
    return types


def _max_episode_steps(made: Env) -> int | None:
    return made.spec.max_episode_steps if made.spec is not None else None


def _observation_spec(env_id: str, space: Space[Any]) -> ObservationSpec:
    floats = (np.float32, np.float64)
    if not (isinstance(space, Box) and space.dtype in floats and len(space.shape) == 1):
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} has observations {space}; "
            "supported are vectors of float32 or float64 (one-dimensional Box)"
        )
    return ObservationSpec(shape=space.shape, dtype="float32")


def _action_spec(env_id: str, space: Space[Any]) -> ActionSpec:
    if isinstance(space, Discrete):
        return DiscreteActionSpec(n=int(space.n))
    if not (isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f"):
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} has actions {space}; "
            "supported are Discrete and vectors of floats (one-dimensional Box)"
        )
    if not space.is_bounded():
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} has unbounded actions {space}; "
            "every action needs finite bounds to be scaled to"
        )
    return ContinuousActionSpec(low=tuple(space.low.tolist()), high=tuple(space.high.tolist()))


def _versions(env: Env) -> dict[str, str]:
    versions = {"gymnasium": gymnasium.__version__, "numpy": np.__version__}
    bases = {base.__module__ for base in type(env.unwrapped).__mro__}
    if any(module.startswith("gymnasium.envs.mujoco.") for module in bases):
        versions["mujoco"] = importlib.metadata.version("mujoco")
    return versions
