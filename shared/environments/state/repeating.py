"""Test by playing whether a seed and the same actions repeat an episode.

A game of a few episodes is played with a new environment for each episode. It is then repeated in
one other environment that plays other games in between, because some simulators do not reset all
of their state. Box2D's contacts, for instance, depend on how often a world was emptied.
"""

import contextlib
import copy
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from shared.contracts.environment_spec import Repeats
from shared.environments.adapters import sampled_action
from shared.environments.interface import not_finite
from shared.environments.rebuilt import Rebuilt
from shared.environments.state.replay import Recorder, seed_generators

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions
Watch = Callable[[], contextlib.AbstractContextManager[None]]

_SEED = 2**62 + 1
"""A 63-bit seed like those of actors."""
_APART = 1000
"""Distance between the seeds of two games: each episode of a game has its own seed."""
_TIMES = 3
"""Number of repetitions in an environment that played other games in between."""
_SLOW_S = 5.0
"""A game that takes this long is too slow to be repeated here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """The outcome of the test."""

    repeats: Repeats
    why_not: str | None = None
    """The first difference; None if there is none."""
    failed: bool = False
    """Whether an environment failed during the test."""
    not_finite: str | None = None
    """The first step with an infinite or NaN observation or reward; None without one."""
    draws_globally: bool = False
    """Whether it drew from Python's or NumPy's global generators."""
    num_steps: int = 0
    """Steps compared."""
    step_s: float = 0.0
    """Mean time of a step, with its share of the resets."""


@dataclass(frozen=True, slots=True)
class _Played:
    """A game of some episodes."""

    num_steps: int
    checksums: tuple[int, ...]
    rewards: bytes
    """As float64: NaN equals NaN."""
    not_finite: str | None
    draws_globally: bool
    took_s: float = field(compare=False)


def try_repeating(
    make: Callable[[], Env],
    *,
    while_trying: Watch = contextlib.nullcontext,
    most_steps: int = 100,
    most_s: float = 0.5,
) -> Repetition:
    """Play a game of a few episodes, and repeat it.

    An environment that is too slow to test counts as repeatable: actors that resume an episode
    detect a difference.

    Args:
        make: Builds another environment of the same kind.
        while_trying: Makes a context for each game, which ends it if it hangs.
        most_steps: Number of steps in the game.
        most_s: Longest time to play it; repetitions take up to four times as long, but at least
            one is made.
    """
    try:
        return _tried(make, while_trying, most_steps, most_s)
    except Exception as error:  # an environment may raise anything
        why_not = f"it failed while its episodes were repeated: {error!r:.200}"
        return Repetition(repeats="never", why_not=why_not, failed=True)


def _tried(
    make: Callable[[], Env], while_trying: Watch, most_steps: int, most_s: float
) -> Repetition:
    with contextlib.closing(make()) as used, contextlib.closing(Rebuilt(make)) as new:
        with while_trying():
            first = _play(new, _SEED, most_steps, most_s=most_s)
        steps = first.num_steps
        step_s = first.took_s / first.num_steps
        times = min(_TIMES, max(1, int(2 * most_s / first.took_s)))
        why_not = None
        for number in range(times if first.took_s <= _SLOW_S else 0):
            with while_trying():
                _play(used, _SEED + _APART * (1 + number), steps)
            with while_trying():
                why_not = _difference(first, _play(used, _SEED, steps))
            if why_not is not None:
                break
        repeats: Repeats = "reused"
        if why_not is not None:
            with while_trying():
                again = _difference(first, _play(new, _SEED, steps))
            repeats = "rebuilt" if again is None else "never"
            why_not = again or f"{why_not}, in an environment that was used before"
    return Repetition(
        repeats=repeats,
        why_not=why_not,
        not_finite=first.not_finite,
        num_steps=first.num_steps,
        step_s=step_s,
        draws_globally=first.draws_globally,
    )


def _play(env: Env, seed: int, num_steps: int, *, most_s: float = math.inf) -> _Played:
    """Play until the steps or the time run out, over as many episodes as that takes.

    Equal observations get equal actions.
    """
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    recorder = Recorder(env, dtype=np.float32)
    started, rewards, checksums = time.perf_counter(), list[float](), list[int]()
    draws_globally = False
    observation, _ = recorder.reset(seed)
    wrong = not_finite("the first reset", observation)
    for step in range(1, num_steps + 1):
        action = sampled_action(env, observation, space)
        observation, reward, terminated, truncated, _ = recorder.step(action)
        rewards.append(float(reward))
        wrong = wrong or not_finite(f"step {step}", observation, rewards[-1])
        if terminated or truncated:
            checksums.append(recorder.episode.checksum)
            draws_globally |= _drawn_since(recorder.episode.seed)
            observation, _ = recorder.reset(seed + len(checksums))
            wrong = wrong or not_finite(f"the reset after step {step}", observation)
        if time.perf_counter() - started > most_s:
            break
    took_s = time.perf_counter() - started
    draws_globally |= _drawn_since(recorder.episode.seed)
    checksums.append(recorder.episode.checksum)
    return _Played(
        len(rewards), tuple(checksums), np.array(rewards).tobytes(), wrong, draws_globally, took_s
    )


def _drawn_since(seed: int) -> bool:
    """Whether a global generator has moved since both were seeded with `seed`."""
    found = _next_numbers()
    seed_generators(seed)
    return found != _next_numbers()


def _next_numbers() -> tuple[float, float]:
    return random.random(), np.random.random()  # noqa: NPY002 - the one environments draw from


def _difference(first: _Played, other: _Played) -> str | None:
    """Return the first difference; None if there is none."""
    if first == other:
        return None
    what = "rewards" if first.checksums == other.checksums else "observations"
    return f"the same seed and actions gave other {what} within {first.num_steps} steps"
