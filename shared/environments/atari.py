"""Atari games by their registered ids.

A game has several ids, whose environments differ: `ALE/Qbert-v5` skips four frames and repeats
actions at random, `QbertNoFrameskip-v4` does neither. Here an id determines only the game and the
probability of sticky actions. The chain of `shared.environments.atari_options` determines the rest.
"""

import dataclasses
import importlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import registry
from pydantic import ValidationError

from shared.contracts.environment_ref import WrapperRef
from shared.environments.games import games_of
from shared.environments.spaces import UnsupportedEnvironment

if TYPE_CHECKING:
    from shared.environments.atari_game import AtariGame
    from shared.environments.atari_options import AtariOptions

_ENTRY_POINT = "ale_py.env:AtariEnv"
_TAKEN = re.compile(r"ALE/\w+-v5|(\w+)NoFrameskip-v4")


def register_games() -> bool:
    """Register the ids of all games with Gymnasium; return whether the emulator is installed."""
    if importlib.util.find_spec("ale_py") is None:
        return False
    importlib.import_module("ale_py")
    return True


def is_atari(env_id: str) -> bool:
    """Whether a registered id names an Atari game."""
    return env_id in registry and registry[env_id].entry_point == _ENTRY_POINT


def atari_options(env_id: str, kwargs: Mapping[str, object]) -> "AtariOptions":
    """Return the options of an id's game.

    Raises:
        UnsupportedEnvironment: The id has a frame skip that cannot be mapped to ours, or an option
            is unknown or out of range.
    """
    from shared.environments.atari_options import AtariOptions  # most actors play no game

    if not _TAKEN.fullmatch(env_id):
        name = env_id.rpartition("-")[0].removesuffix("NoFrameskip")
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} is not supported; use ALE/{name}-v5 or {name}NoFrameskip-v4"
        )
    defaults = {"sticky_actions": registry[env_id].kwargs["repeat_action_probability"]}
    try:
        return AtariOptions.model_validate({**defaults, **kwargs})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(AtariOptions.model_fields)
            raise UnsupportedEnvironment(
                f"env_kwargs.{name} is no option of a game; known: {known}"
            ) from None
        raise UnsupportedEnvironment(
            f"env_kwargs.{name} is {first['input']!r:.80}: {first['msg']}"
        ) from None


def make_game(
    env_id: str, kwargs: Mapping[str, object], *, render_mode: str | None = None
) -> "AtariGame":
    """Return the game of a registered id.

    Raises:
        UnsupportedEnvironment: As for `atari_options`, or the game lacks a mode or difficulty.
    """
    from shared.environments.atari_game import AtariGame  # loads the emulator

    options = atari_options(env_id, kwargs)
    registered = registry[env_id]
    game = AtariGame(registered.kwargs["game"], options, render_mode=render_mode)
    game.spec = dataclasses.replace(registered, max_episode_steps=options.max_episode_steps)
    return game


def chain(env: gymnasium.Env[Any, Any], wrappers: Sequence[WrapperRef]) -> tuple[str, ...]:
    """Return the layers between a game and the policy, one line each; none if it is not a game."""
    games = games_of(env)
    if games is None:
        return ()
    given = ((ref.name, f" with {ref.kwargs}" if ref.kwargs else "") for ref in wrappers)
    return (*games.chain, *(f"wrapper: {name}{kwargs}" for name, kwargs in given))
