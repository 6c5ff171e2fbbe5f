"""Test by playing whether episodes of an environment can be saved and resumed.

Two games are played with the same actions. One runs undisturbed in one environment. The other is
handed from environment to environment. It is saved at random moments and at episode ends. Then a
new environment resumes it, or an environment that has played something else since. Both games must
return bit-identical results.
"""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from shared.environments.adapters import sampled_action
from shared.environments.games import games_of
from shared.environments.interface import not_finite
from shared.environments.state.keeper import Arrays, NotNowError, StateError
from shared.environments.state.saving import save_state
from shared.environments.state.snapshot import Snapshot, decode, encode, resume, snapshot_bytes
from shared.environments.told_errors import error_text

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

_OUTCOME = ("observation", "reward", "termination", "truncation")
_LEFT_AT_ENDS = 0.5
"""Probability that a game is saved where an episode ends."""
_OTHER_STEPS = 5
"""Steps of another episode in an environment before it resumes a game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compliance:
    """The outcome of the test."""

    why_not: str | None
    """The state that is not saved, or the first difference; None if any process can continue."""
    not_finite: str | None = None
    """The first step with an infinite or NaN observation or reward; None without one."""
    num_steps: int = 0
    """Steps compared."""
    num_ends: int = 0
    """Episodes that ended in these steps."""
    num_left: int = 0
    """Number of times that the game was saved and resumed."""
    num_left_at_ends: int = 0
    """How many of these were at the end of an episode."""
    num_not_left: int = 0
    """Moments at which the game could not be saved."""
    snapshot_bytes: int = 0
    """Size of the largest encoded snapshot."""
    leave_s: float = 0.0
    """Median time to save the state and encode it."""
    take_up_s: float = 0.0
    """Median time to decode the state and continue, including the repeated step or reset."""
    step_s: float = 0.0
    """Median time of a step."""


class _DifferenceError(Exception):
    """The two games differ."""


def check_compliance(
    make: Callable[[], Env], *, num_steps: int, seed: int = 0, num_left: int = 20
) -> Compliance:
    """Play both games and compare them.

    Args:
        make: Builds another environment of the same kind.
        num_steps: Number of steps to play, over as many episodes as they take.
        seed: Determines the episodes, the actions, and the moments of saving.
        num_left: Approximate number of saves within episodes.

    Raises:
        Exception: Any error that the environment raises in the undisturbed game.
    """
    relay = _Relay(make, seed=seed, probability=min(1.0, num_left / num_steps))
    try:
        why_not = relay.play(num_steps)
    except _DifferenceError as error:
        why_not = str(error)
    finally:
        relay.close()
    return relay.found(why_not)


class _Relay:
    """The two games."""

    def __init__(self, make: Callable[[], Env], *, seed: int, probability: float) -> None:
        self._make = make
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._probability = probability
        self.undisturbed = make()
        self._runner = make()
        """Environment that now plays the other game."""
        self._spare: Env | None = None
        """Environment that played it before."""
        self._step_index = 0
        """The step under way, counted from 1."""
        self._not_finite: str | None = None
        self._left_at: int | None = None
        """Latest step after which it was saved."""
        self._num_left_at_ends = self._num_not_left = self._num_ends = 0
        self._save_s = 0.0
        self._bytes: list[int] = []
        self._leave_s: list[float] = []
        self._take_up_s: list[float] = []
        self._step_s: list[float] = []

    def play(self, num_steps: int) -> str | None:
        """Play `num_steps` steps; return why the game cannot be saved, or None.

        Raises:
            _DifferenceError: The games differ.
        """
        expected = self.undisturbed.reset(seed=self._seed)[0]
        # A copy of the space: some environments create a new, unseeded space at every reset.
        actions = copy.deepcopy(self.undisturbed.action_space)
        actions.seed(self._seed)
        self._not_finite = not_finite("the first reset", expected)
        self._require_same("observation", expected, self._runner.reset(seed=self._seed)[0])
        try:
            snapshot_bytes(self._runner)
        except StateError as error:
            return str(error)
        for self._step_index in range(1, num_steps + 1):
            self._step(actions.sample())
        if self._num_not_left and not self._take_up_s:
            return f"it could not be left at any of {self._num_not_left} moments"
        return None

    def found(self, why_not: str | None) -> Compliance:
        """Return the outcome."""
        return Compliance(
            why_not=why_not,
            not_finite=self._not_finite,
            num_steps=len(self._step_s),
            num_ends=self._num_ends,
            num_left=len(self._take_up_s),
            num_left_at_ends=self._num_left_at_ends,
            num_not_left=self._num_not_left,
            snapshot_bytes=max(self._bytes, default=0),
            leave_s=statistics.median(self._leave_s or [0.0]),
            take_up_s=statistics.median(self._take_up_s or [0.0]),
            step_s=statistics.median(self._step_s or [0.0]),
        )

    def close(self) -> None:
        """Close every environment."""
        for env in (self.undisturbed, self._runner, self._spare):
            if env is not None:
                env.close()

    def _step(self, action: Any) -> None:  # noqa: ANN401 - whatever the space gives
        started = time.perf_counter()
        expected = self.undisturbed.step(copy.copy(action))
        self._step_s.append(time.perf_counter() - started)
        wrong = not_finite(f"step {self._step_index}", expected[0], expected[1])
        ended = bool(expected[2] or expected[3])
        finished = _finished(self.undisturbed) if ended else []
        following = self.undisturbed.reset()[0] if ended else expected[0]
        self._num_ends += ended
        wrong = wrong or not_finite(f"the reset after step {self._step_index}", following)
        self._not_finite = self._not_finite or wrong
        try:
            self._step_the_other(action, expected, finished, following)
        except _DifferenceError:
            raise
        except Exception as error:  # an environment may raise anything
            raise self._difference(f"{error_text(error)} was raised") from error

    def _step_the_other(
        self, action: object, expected: Sequence[Any], finished: object, following: object
    ) -> None:
        """Step, save and resume the game that moves between environments."""
        is_left, is_left_if_ended = self._rng.random(2) < (self._probability, _LEFT_AT_ENDS)
        arrays = self._saved() if is_left else None
        given = self._runner.step(copy.copy(action))
        for name, value, same in zip(_OUTCOME, expected, given, strict=False):
            self._require_same(name, value, same)
        ended = bool(given[2] or given[3])
        if ended:
            self._require_same("score of the game", finished, _finished(self._runner))
            arrays = self._saved() if is_left_if_ended else None
        if arrays is not None:
            observation = self._handed_over(Snapshot(arrays, None if ended else action))
            self._num_left_at_ends += ended
        else:
            observation = self._runner.reset()[0] if ended else given[0]
        self._require_same("observation", following, observation)

    def _saved(self) -> Arrays | None:
        """Return the state, or None if it cannot be saved at this moment."""
        started = time.perf_counter()
        try:
            return save_state(self._runner)
        except NotNowError:
            self._num_not_left += 1
            return None
        finally:
            self._save_s = time.perf_counter() - started

    def _handed_over(self, snapshot: Snapshot) -> object:
        """Continue in another environment; return the observation."""
        started = time.perf_counter()
        data = encode(snapshot)
        self._leave_s.append(self._save_s + time.perf_counter() - started)
        self._bytes.append(len(data))
        left, receiver = self._runner, self._spare
        if receiver is None:
            self._runner, self._spare = self._make(), left
        else:
            self._runner, self._spare = receiver, None
            self._use(receiver)
            left.close()
        self._left_at = self._step_index
        started = time.perf_counter()
        observation = resume(self._runner, decode(data))
        self._take_up_s.append(time.perf_counter() - started)
        return observation

    def _use(self, env: Env) -> None:
        """Put an environment into the middle of another episode."""
        observation, _ = env.reset(seed=self._seed + 1 + self._step_index)
        for _ in range(_OTHER_STEPS):
            observation, _, terminated, truncated, _ = env.step(sampled_action(env, observation))
            if terminated or truncated:
                observation, _ = env.reset()

    def _require_same(self, name: str, expected: object, given: object) -> None:
        wanted, came = np.asarray(expected), np.asarray(given)
        same_kind = (wanted.shape, wanted.dtype) == (came.shape, came.dtype)
        if same_kind and wanted.tobytes() == came.tobytes():
            return
        if not same_kind or wanted.ndim == 0:
            raise self._difference(f"the {name} is {given!s:.80}, not {expected!s:.80}")
        num_wrong = int((wanted != came).sum())
        raise self._difference(f"{num_wrong} of {wanted.size} numbers of the {name} differ")

    def _difference(self, what: str) -> _DifferenceError:
        if self._left_at is None:
            since = "although nothing was left yet: equal seeds and actions give unequal episodes"
        else:
            since = f"having been left after step {self._left_at}"
        return _DifferenceError(f"step {self._step_index}: {what}, {since}")


def _finished(env: Env) -> list[tuple[float, int]]:
    games = games_of(env)
    return [] if games is None else [(game.score, game.length) for game in games.take_finished()]
