"""Build an environment by its registered name, and describe it.

Only the actor image has a simulator. The learner knows an environment by the `EnvironmentSpec` that
`describe` returns. An environment that Nitro cannot train on is refused here, before a job starts.
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import ActionWrapper, RewardWrapper
from gymnasium.envs.registration import EnvSpec, load_env_creator, registry
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shared.contracts.environment_ref import EnvironmentRef, EnvKwarg
from shared.contracts.environment_spec import EnvironmentSpec
from shared.environments import atari
from shared.environments.adapters import FlatAction, adapted, has_mask, sampled_action
from shared.environments.agents import Agent, agents_of, choose, first_agent
from shared.environments.bound_action import BoundAction
from shared.environments.files import known_file
from shared.environments.games import games_of
from shared.environments.interface import require_reward, require_start, what_went_wrong
from shared.environments.mujoco_memo import remember_answers
from shared.environments.pace import slow_step_s
from shared.environments.rebuilt import LONG_SEED, Rebuilt
from shared.environments.spaces import (
    UnsupportedEnvironment,
    action_spec,
    check_action_space,
    check_observation_space,
    checked_observation,
    observation_spec,
)
from shared.environments.state.keeper import StateError
from shared.environments.state.repeating import try_repeating
from shared.environments.state.snapshot import snapshot_bytes
from shared.environments.step_limit import StepLimit
from shared.environments.told_errors import error_text, where_raised
from shared.environments.variables import AT_IMPORT, noting_reads, set_variables, worth_telling
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
_MAX_NOTE, _MAX_NOTES = 300, 8
_NOT_KEPT = "episodes cannot be left and taken up: "
_PLAIN_WRAPPERS: frozenset[type] = frozenset({TimeLimit, OrderEnforcing, PassiveEnvChecker})
_KEEP_OBSERVATIONS = (StepLimit, Rebuilt, *_PLAIN_WRAPPERS, ActionWrapper, RewardWrapper)


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
        return _built(ref, raw_rewards=raw_rewards, render_mode=render_mode)[0]

    return Rebuilt(make) if rebuild else make()


def describe(
    ref: EnvironmentRef,
    *,
    while_building: contextlib.AbstractContextManager[None] | None = None,
    while_trying: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> EnvironmentSpec:
    """Return what the learner needs to know about the environment, after trying one step.

    Args:
        ref: The environment and its wrappers.
        while_building: Context around the construction; ends it if it hangs.
        while_trying: Makes such a context for each reset and each step.

    Raises:
        UnsupportedEnvironment: As for `make_environment`, or the first step's values do not fit
            the spaces.
    """
    read: dict[str, str | None] = {}
    with while_building or contextlib.nullcontext(), noting_reads(read):
        env, notes = _built(ref)
    try:
        with noting_reads(read):
            _try_one_step(ref.env_id, env, while_trying)
        size, why_not = 0, None
        with while_trying():
            try:
                size = snapshot_bytes(env)
            except StateError as error:
                why_not = f"{_NOT_KEPT}{error}"[:_MAX_NOTE]
        repeats, differs, draws_globally = None, None, False
        if why_not is not None:
            repetition = try_repeating(lambda: make_environment(ref), while_trying=while_trying)
            repeats, differs = repetition.repeats, repetition.why_not
            draws_globally = repetition.draws_globally
        return EnvironmentSpec(
            env_id=ref.env_id,
            observation=observation_spec(env.observation_space).model_copy(
                update={"frame_stack": _frame_stack(env), "action_mask": has_mask(env)}
            ),
            action=action_spec(env.action_space),
            max_episode_steps=env.spec.max_episode_steps if env.spec is not None else None,
            episodes_are_lives=games_of(env) is not None,
            agents=len(agents_of(env)),
            preprocessing=atari.chain(env, ref.wrappers),
            versions=_versions(env),
            notes=(*notes, *(note for note in (why_not, differs) if note is not None)),
            variables=worth_telling(read),
            keeps_state=why_not is None,
            snapshot_bytes=size,
            step_s=slow_step_s(env, while_trying) / len(agents_of(env)),
            repeats=repeats,
            draws_globally=draws_globally,
        )
    finally:
        env.close()


def _built(
    ref: EnvironmentRef, *, raw_rewards: bool = False, render_mode: str | None = None
) -> tuple[Env, tuple[str, ...]]:
    """Return the environment and its libraries' warnings."""
    # Warnings go into the run's record: nobody would look for them in an actor's log.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _set_variables(ref)
        env = _made(ref, render_mode)
        try:
            agent, env = env.unwrapped, _dressed(ref, _unwrapped(env), raw_rewards=raw_rewards)
            if isinstance(agent, Agent):
                _refuse_changed_actions(env)
                bare = (StepLimit(other, spec=env.spec) for other in agent.remaining())
                agent.others = tuple(_dressed(ref, each, raw_rewards=raw_rewards) for each in bare)
        except UnsupportedEnvironment:
            env.close()
            raise
    texts = (_COLOUR.sub("", str(warning.message))[:_MAX_NOTE] for warning in caught)
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
    wrappers = _wrapper_types(made)
    if len(set(wrappers)) < len(wrappers) or not _PLAIN_WRAPPERS.issuperset(wrappers):
        return made  # more than one time limit, or a change of observations, rewards or ends
    bare = made.unwrapped
    remember_answers(bare)
    return StepLimit(bare, spec=made.spec)


def _try_one_step(
    env_id: str, env: Env, while_trying: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    """Reset and step once: an environment may break the promises of its spaces.

    Rollouts check whether numbers are finite.
    """
    try:
        env.action_space.seed(0)
        with while_trying():
            # A long seed: an environment that takes only short seeds would fail in every actor.
            start = require_start(env.reset(seed=LONG_SEED))
        checked_observation(start, env.observation_space)
        with while_trying():
            action = sampled_action(env, np.asarray(start))
            if len(agents := agents_of(env)) > 1:
                starts = [start, *(agent.reset()[0] for agent in agents[1:])]
                choose(agents, [action, *map(sampled_action, agents[1:], starts[1:])])
            observation, reward, terminated, truncated, _ = env.step(action)
        checked_observation(observation, env.observation_space)
        require_reward(reward)
        bool(terminated), bool(truncated)
    except Exception as error:  # an environment may raise anything
        why = what_went_wrong(error, env)
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} failed when its first step was tried: {why}"
        ) from error


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


def _wrapper_types(env: Env) -> list[type]:
    """Return the wrappers' types, outermost first."""
    types: list[type] = []
    while isinstance(env, gymnasium.Wrapper):
        types.append(type(env))
        env = env.env
    return types


def _frame_stack(env: Env) -> int | None:
    """Return how many frames an observation stacks, or None if it is not a stack of frames.

    A wrapper may change observations unless it is known to leave them alone.
    """
    games = games_of(env)
    kept = all(issubclass(kind, _KEEP_OBSERVATIONS) for kind in _wrapper_types(env))
    return games.frame_stack if games is not None and kept else None


def _versions(env: Env) -> dict[str, str]:
    versions = {"gymnasium": gymnasium.__version__, "numpy": np.__version__}
    kind = type(env.unwrapped)
    bases = {base.__module__ for base in kind.__mro__}
    if any(module.startswith("gymnasium.envs.mujoco.") for module in bases):
        versions["mujoco"] = importlib.metadata.version("mujoco")
    if "shared.environments.atari_game" in bases:
        versions["ale-py"] = importlib.metadata.version("ale-py")
    package = kind.__module__.partition(".")[0]
    if package not in ("gymnasium", "shared"):  # a user's package, by its distribution
        installed = _distributions(tuple(sys.path)).get(package, ())
        versions |= {name: importlib.metadata.version(name) for name in installed}
    return versions


@functools.cache
def _distributions(_path: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return the distributions of every package on the path; reads the metadata of all files."""
    return importlib.metadata.packages_distributions()
