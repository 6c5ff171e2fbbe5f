"""Games whose episodes may be single lives: the outcome of a whole game, apart from its episodes.

An actor learns from episodes and reports games. In most environments the two are the same. An
environment that tells them apart has a `Games` as its innermost layer.
"""

from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedGame:
    """The outcome of a whole game, which may span several episodes."""

    score: float
    """Sum of all raw rewards."""
    length: int
    """Agent steps."""


class Games(gymnasium.Env[Any, Any]):
    """An environment that counts whole games."""

    frame_stack: int
    """Frames per observation."""
    chain: tuple[str, ...]
    """The layers between the simulator and the observation, one line each."""
    score: float
    """Sum of all raw rewards of the current game."""
    finished: list[FinishedGame]
    """Games that ended since the last `take_finished`."""

    def take_finished(self) -> list[FinishedGame]:
        """Return the games that ended since the last call, and forget them."""
        finished, self.finished = self.finished, []
        return finished


def games_of(env: Env) -> Games | None:
    """Return the layer of an environment that counts games, or None if it has only episodes."""
    bare = env.unwrapped
    return bare if isinstance(bare, Games) else None


def whole_games(env: Env) -> Env:
    """Return the environment with whole games as episodes, for playing rather than learning."""
    games = games_of(env)
    return env if games is None else _WholeGames(env, games)


class _WholeGames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Continues with the next life by itself; the last step's reward is the raw score."""

    def __init__(self, env: Env, games: Games) -> None:
        super().__init__(env)
        self._games = games

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            return observation, 0.0, False, False, info
        following = observation
        if not (finished := self._games.take_finished()):
            following = self.env.reset()[0]
            # A limit of frames may end the game between two lives; then the next life is not ours.
            if not (finished := self._games.take_finished()):
                return following, 0.0, False, False, info
            terminated, truncated = False, True
        return observation, finished[0].score, terminated, truncated, info
