"""Whether a seed and the same actions give the same episode again: found out by playing.

An episode is played in one environment and repeated in another one. That one is used for other
episodes in between, as some simulators do not reset all of their state. Box2D's contacts, for
instance, follow from how often a world was emptied.
"""

import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from shared.contracts.environment_spec import Repeats
from shared.environments.state.replay import Recorder

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say
Watch = Callable[[], contextlib.AbstractContextManager[None]]

_SEED = 2**62 + 1
"""Of 63 bits, as actors reset with."""
_MOST_STEPS = 100
_MOST_S = 0.5
"""How long the first episode is played: the others are as long."""
_TIMES = 3
"""How often the episode is repeated in an environment that was used in between."""
_TRYING_S = 2.0
"""How long these repetitions take at most."""
_SLOW_S = 5.0
"""From here on an episode of some steps is too slow to be repeated here."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """What came of it."""

    repeats: Repeats
    why_not: str | None = None
    """What was not the same, where something was not."""


@dataclass(frozen=True, slots=True)
class _Played:
    num_steps: int
    checksum: int
    rewards: tuple[float, ...]


def try_repeating(
    make: Callable[[], Env],
    *,
    while_trying: Watch = contextlib.nullcontext,
    most_steps: int = _MOST_STEPS,
    most_s: float = _MOST_S,
) -> Repetition:
    """Play an episode, and repeat it in environments that are new, and in one that is not.

    An environment that is too slow to try is taken for one that repeats: whoever takes an episode
    up finds out.

    Args:
        make: Builds one more environment of the kind.
        while_trying: Makes what is entered for each episode, to end it if it hangs.
        most_steps: How long the episode is.
        most_s: How long it is played at most.
    """
    try:
        return _tried(make, while_trying, most_steps, most_s)
    except Exception as error:  # an environment may raise anything
        return Repetition("never", f"it failed while its episodes were repeated: {error!r:.200}")


def _tried(
    make: Callable[[], Env], while_trying: Watch, most_steps: int, most_s: float
) -> Repetition:
    used = make()
    try:
        actions = _actions(used, most_steps)
        started = time.perf_counter()
        with while_trying():
            first = again = _play(used, _SEED, actions, most_s=most_s)
        actions = actions[: first.num_steps]
        took_s = time.perf_counter() - started
        if took_s > _SLOW_S:
            return Repetition("reused")
        for number in range(min(_TIMES, int(_TRYING_S / took_s))):
            if again == first:
                with while_trying():
                    _play(used, _SEED + 1 + number, actions)
                with while_trying():
                    again = _play(used, _SEED, actions)
    finally:
        used.close()
    new = _in_new_one(make, actions, while_trying)
    if new != first:
        return Repetition("never", _difference(first, new))
    if again == first:
        return Repetition("reused")
    why_not = _difference(first, again)
    if _in_new_one(make, actions, while_trying) != first:
        return Repetition("never", why_not)
    return Repetition("rebuilt", f"{why_not}, in an environment that was used before")


def _actions(env: Env, number: int) -> list[Any]:
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    return [space.sample() for _ in range(number)]


def _in_new_one(make: Callable[[], Env], actions: Sequence[Any], while_trying: Watch) -> _Played:
    env = make()
    try:
        with while_trying():
            return _play(env, _SEED, actions)
    finally:
        env.close()


def _play(env: Env, seed: int, actions: Sequence[Any], *, most_s: float | None = None) -> _Played:
    """Play an episode to its end, or as long as there are actions and time."""
    recorder = Recorder(env, dtype=np.float32)
    recorder.reset(seed)
    started, rewards = time.perf_counter(), list[float]()
    for action in actions:
        _, reward, terminated, truncated, _ = recorder.step(copy.copy(action))
        rewards.append(float(reward))
        if terminated or truncated:
            break
        if most_s is not None and time.perf_counter() - started > most_s:
            break
    return _Played(len(rewards), recorder.episode.checksum, tuple(rewards))


def _difference(first: _Played, other: _Played) -> str:
    if first.num_steps != other.num_steps:
        lengths = f"{first.num_steps} and then {other.num_steps} steps"
        return f"the same seed and actions gave episodes of {lengths}"
    what = "observations" if first.checksum != other.checksum else "rewards"
    return f"the same seed and actions gave other {what} within {first.num_steps} steps"
