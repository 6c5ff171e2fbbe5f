"""Describe an environment, after trying one step.

Only the actor image has a simulator. The learner knows an environment by the `EnvironmentSpec` that
`describe` returns.
"""

import contextlib
import functools
import importlib.metadata
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence

import gymnasium
import numpy as np
from gymnasium import ActionWrapper, RewardWrapper

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import EnvironmentSpec
from shared.environments import atari
from shared.environments.adapters import has_mask, sampled_action
from shared.environments.agents import agents_of, choose
from shared.environments.building import (
    MAX_NOTE,
    PLAIN_WRAPPERS,
    Env,
    built,
    make_environment,
    wrapper_types,
)
from shared.environments.games import games_of
from shared.environments.interface import (
    environment_frames,
    require_reward,
    require_start,
    what_went_wrong,
)
from shared.environments.pace import slow_step_s
from shared.environments.rebuilt import LONG_SEED, Rebuilt
from shared.environments.spaces import (
    UnsupportedEnvironment,
    action_spec,
    checked_observation,
    observation_spec,
)
from shared.environments.state.keeper import StateError
from shared.environments.state.repeating import try_repeating
from shared.environments.state.snapshot import snapshot_bytes
from shared.environments.step_limit import StepLimit
from shared.environments.variables import noting_reads, worth_telling

_NOT_KEPT = "episodes cannot be left and taken up: "
_KEEP_OBSERVATIONS = (StepLimit, Rebuilt, *PLAIN_WRAPPERS, ActionWrapper, RewardWrapper)


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
        env, notes = built(ref)
    try:
        with noting_reads(read):
            _try_one_step(ref.env_id, env, while_trying)
        size, why_not = 0, None
        with while_trying():
            try:
                size = snapshot_bytes(env)
            except StateError as error:
                why_not = f"{_NOT_KEPT}{error}"[:MAX_NOTE]
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
        where = environment_frames(traceback.extract_tb(error.__traceback__))
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} failed when its first step was tried: {why}{where}"
        ) from error


def _frame_stack(env: Env) -> int | None:
    """Return how many frames an observation stacks, or None if it is not a stack of frames.

    A wrapper may change observations unless it is known to leave them alone.
    """
    games = games_of(env)
    kept = all(issubclass(kind, _KEEP_OBSERVATIONS) for kind in wrapper_types(env))
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
