"""Build an environment by its registered name.

An environment that Nitro cannot train on is refused here, before a job starts.
"""

import dataclasses
import difflib
import re
import warnings
from typing import Any

import gymnasium
from gymnasium import ActionWrapper
from gymnasium.envs.registration import EnvSpec, load_env_creator, registry
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shared.contracts.environment_ref import EnvironmentRef, EnvKwarg
from shared.environments import atari
from shared.environments.adapters import FlatAction, adapted
from shared.environments.agents import Agent, first_agent
from shared.environments.bound_action import BoundAction
from shared.environments.files import known_file
from shared.environments.mujoco_memo import remember_answers
from shared.environments.rebuilt import Rebuilt
from shared.environments.spaces import (
    UnsupportedEnvironment,
    check_action_space,
    check_observation_space,
    require_spaces,
)
from shared.environments.step_limit import StepLimit
from shared.environments.told_errors import error_text, where_raised
from shared.environments.variables import AT_IMPORT, set_variables
from shared.environments.wrappers import wrapped

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

_REFUSED_KWARGS = {
    "id": "the environment is named by env_id",
    "disable_env_checker": "the checker is always off",
    "render_mode": "actors never draw",
}
_UNEXPECTED_KWARG = re.compile(r"unexpected keyword argument '(\w+)'")
_OWN_PACKAGE = (
    "; if it is one of your own, name its package or file in NITRO_ENVIRONMENT_PACKAGES "
    "(nitro train --environment-package my_env.py)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MAX_NOTE, _MAX_NOTES = 300, 8
PLAIN_WRAPPERS: frozenset[type] = frozenset({TimeLimit, OrderEnforcing, PassiveEnvChecker})


def make_environment(
    ref: EnvironmentRef,
    *,
    raw_rewards: bool = False,
    render_mode: str | None = None,
    rebuild: bool = False,
) -> Env:
    """Return the environment, with as little as possible between its `step` and the caller.

    Its observations are vectors or channels-first images, regardless of their original form.

    Args:
        ref: The environment and its wrappers.
        raw_rewards: Whether to leave out wrappers that change rewards, as evaluations do.
        render_mode: Gymnasium's render mode; None to render nothing.
        rebuild: Whether every reset rebuilds the environment.

    Raises:
        UnsupportedEnvironment: A name is unknown, a keyword argument is wrong, a package is
            missing, or Nitro cannot train on such observations or actions.
    """

    def make() -> Env:
        return built(ref, raw_rewards=raw_rewards, render_mode=render_mode)[0]

    return Rebuilt(make) if rebuild else make()


def built(
    ref: EnvironmentRef, *, raw_rewards: bool = False, render_mode: str | None = None
) -> tuple[Env, tuple[str, ...]]:
    """Return the environment and its libraries' warnings."""
    # Warnings go into the run's record: nobody would look for them in an actor's log.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _set_variables(ref)
        env = _made(ref, render_mode)
        try:
            require_spaces(ref.env_id, env)
            agent, env = env.unwrapped, _dressed(ref, _unwrapped(env), raw_rewards=raw_rewards)
            if isinstance(agent, Agent):
                _refuse_changed_actions(env)
                bare = (StepLimit(other, spec=env.spec) for other in agent.remaining())
                agent.others = tuple(_dressed(ref, each, raw_rewards=raw_rewards) for each in bare)
        except UnsupportedEnvironment:
            env.close()
            raise
    texts = (_COLOUR.sub("", str(warning.message))[:MAX_NOTE] for warning in caught)
    return env, tuple(dict.fromkeys(texts))[:_MAX_NOTES]


def _dressed(ref: EnvironmentRef, env: Env, *, raw_rewards: bool) -> Env:
    """Return the environment in the job's wrappers, in the form that policies expect."""
    env = wrapped(env, ref.wrappers, raw_rewards=raw_rewards)
    check_observation_space(ref.env_id, env.observation_space, env.action_space)
    check_action_space(ref.env_id, env.action_space)
    return adapted(env)


def _refuse_changed_actions(env: Env) -> None:
    """Refuse wrappers that change an agent's action at random: it is computed more than once.

    Raises:
        UnsupportedEnvironment: The environment has such a wrapper.
    """
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, ActionWrapper) and not isinstance(env, BoundAction | FlatAction):
            raise UnsupportedEnvironment(
                f"wrapper {type(env).__name__} changes actions, which several agents do not support"
            )
        env = env.env


def _set_variables(ref: EnvironmentRef) -> None:
    set_variables(ref.env_variables)
    for name, value in ref.env_variables.items():
        if AT_IMPORT.get(name, value) != value:
            raise UnsupportedEnvironment(
                f"env_variables.{name}: the environment's package reads it when it is imported, "
                "before a job can set it; read it in the constructor, or set it where actors run"
            )


def _unwrapped(made: Env) -> Env:
    """Return the bare environment under a cheap time limit, if no other wrapper has an effect."""
    wrappers = wrapper_types(made)
    if len(set(wrappers)) < len(wrappers) or not PLAIN_WRAPPERS.issuperset(wrappers):
        return made  # more than one time limit, or a change of observations, rewards or ends
    bare = made.unwrapped
    remember_answers(bare)
    return StepLimit(bare, spec=made.spec)


def require_registered(env_id: str) -> None:
    """Refuse the name of an environment that is not registered.

    Raises:
        UnsupportedEnvironment: Gymnasium knows no such environment; the message lists similar
            names.
    """
    if env_id not in registry:
        atari.register_games()  # Gymnasium does not know them before
    if env_id not in registry:
        near = difflib.get_close_matches(env_id, sorted(registry), n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else _OWN_PACKAGE
        raise UnsupportedEnvironment(f"env_id {env_id!r} is no registered environment{hint}")


def _made(ref: EnvironmentRef, render_mode: str | None) -> Env:
    """Return the result of `gymnasium.make`, or raise an error that names the reference's fault."""
    require_registered(ref.env_id)
    _check_kwargs(ref.env_kwargs)
    if atari.is_atari(ref.env_id):
        return atari.make_game(ref.env_id, ref.env_kwargs, render_mode=render_mode)
    kwargs: dict[str, Any] = {
        name: value if (path := known_file(value)) is None else str(path)
        for name, value in ref.env_kwargs.items()
    }
    if render_mode:
        kwargs["render_mode"] = render_mode
    try:
        return gymnasium.make(_with_agents(ref.env_id), disable_env_checker=True, **kwargs)
    except UnsupportedEnvironment:
        raise
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UnsupportedEnvironment(
            f"env_id {ref.env_id!r} needs a package that is not installed: {error}"
        ) from error
    except Exception as error:  # an environment's constructor may raise anything
        raise UnsupportedEnvironment(_construction_message(ref, error)) from error


def _with_agents(env_id: str) -> str | EnvSpec:
    """Return the argument of `gymnasium.make` with which a parallel environment is its first agent.

    It is the name where the entry point is a class of environments of one agent.
    """
    spec = registry[env_id]
    make = spec.entry_point
    creator = load_env_creator(make) if isinstance(make, str) else make
    if creator is None or (isinstance(creator, type) and issubclass(creator, gymnasium.Env)):
        return env_id

    def first(**kwargs: object) -> Env:
        made: Any = creator(**kwargs)
        return made if isinstance(made, gymnasium.Env) else first_agent(env_id, made)

    if hasattr(creator, "metadata"):
        first.metadata = creator.metadata  # type: ignore[attr-defined]
    return dataclasses.replace(spec, entry_point=first)


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
    if isinstance(error, TypeError) and unexpected and unexpected.group(1) == "render_mode":
        return f"env_id {ref.env_id!r} cannot be drawn: it takes no render_mode"
    if isinstance(error, TypeError) and unexpected:
        return f"env_kwargs.{unexpected.group(1)} is no keyword argument of {ref.env_id}"
    given = f" with env_kwargs {ref.env_kwargs}" if ref.env_kwargs else ""
    where = where_raised(error, [str(registry[ref.env_id].entry_point)])
    return f"env_id {ref.env_id!r} cannot be built{given}: {error_text(error)}{where}"


def wrapper_types(env: Env) -> list[type]:
    """Return the wrappers' types, outermost first."""
    types: list[type] = []
    while isinstance(env, gymnasium.Wrapper):
        types.append(type(env))
        env = env.env
    return types
