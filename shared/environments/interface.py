"""Return values of Gymnasium's `reset` and `step`, and messages for environments that differ.

Rollouts unpack these values unchecked: a check would cost time in every step. After a failure this
module finds the cause from the error and from the place where it was raised.
"""

import inspect
import re
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

import shared
from shared.environments.told_errors import error_text

Env = gymnasium.Env[Any, Any]

RESET_RETURNS = "Gymnasium's reset returns two values: an observation, and a dict of information"
STEP_RETURNS = (
    "Gymnasium's step returns five values: observation, reward, terminated, truncated, and a dict "
    "of information (old Gym's had `done` for the third and fourth)"
)
_UNPACKING = re.compile(r"values to unpack \(expected ([25])\b")
_BETWEEN = ("functions.", "gymnasium.core", "gymnasium.wrappers.", "nitro.", "shared.")
"""Modules that call environments without being environments."""

_OURS = (*map(str, shared.__path__), str(Path(shared.__path__[0]).parent / "functions"))
_GYMNASIUM = str(Path(gymnasium.__file__).parent)
_MOST_FRAMES = 4
"""Number of innermost frames to show; the message has to fit into a reply."""


def require_start(start: object) -> object:
    """Return the observation in the value that `reset` returned.

    Raises:
        TypeError: The value is not an observation and a dict.
    """
    if not (isinstance(start, Sequence) and len(start) == 2 and isinstance(start[1], Mapping)):
        raise TypeError(f"reset returned {_shown(start)}; {RESET_RETURNS}")
    return start[0]


def require_reward(reward: object) -> float:
    """Return a reward as a number.

    Raises:
        TypeError: The reward is not exactly one number.
    """
    if not _is_number(reward):
        raise TypeError(f"step returned the reward {_shown(reward)}; a reward is one number")
    return float(reward)  # type: ignore[arg-type] # it is a number


def not_finite(at: str, observation: object, reward: SupportsFloat = 0.0) -> str | None:
    """Return a message about the numbers of a step that are not finite; None if all are.

    Args:
        at: The moment, such as `step 3`, with which the message begins.
        observation: As a policy sees it # [*obs].
        reward: The step's reward.
    """
    with np.errstate(over="ignore"):  # rollouts have float32, too
        seen, reward_f32 = np.asarray(observation, np.float32), np.float32(float(reward))
    wrong = np.argwhere(~np.isfinite(seen))
    if len(wrong):
        index = tuple(wrong[0].tolist())
        first = f"{seen[index]} at index {', '.join(map(str, index))}"
        return f"{at}: {len(wrong)} of the observation's {seen.size} numbers not finite ({first})"
    return None if np.isfinite(reward_f32) else f"{at}: the reward is {reward_f32}"


def what_went_wrong(error: BaseException, env: Env) -> str:
    """Return a message for an error raised while an environment was called.

    If the environment returned an unusable value, the message shows it and the method's line.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or not _is_between(frames[-1]):
        return error_text(error)  # the environment itself raised it
    unpacking = _UNPACKING.search(error_text(error)) if isinstance(error, ValueError) else None
    if unpacking is not None:
        method, returns = ("reset", RESET_RETURNS), ("step", STEP_RETURNS)
        name, said = method if unpacking.group(1) == "2" else returns
        return f"{said}: {error_text(error)}{_place(env, name)}"
    for frame in filter(_is_between, frames):
        info = frame.f_locals.get("info", {})
        if frame.f_code.co_name == "reset" and not isinstance(info, Mapping):
            # A wrapper unpacks any two values, such as the keys of a dict.
            two = f"{_shown(frame.f_locals.get('obs'))} and {_shown(info)}"
            return f"{RESET_RETURNS}; unpacked, its result is {two}{_place(env, 'reset')}"
    rewards = (frame.f_locals["reward"] for frame in frames if "reward" in frame.f_locals)
    for reward in rewards:
        if not _is_number(reward):
            said = f"step returned the reward {_shown(reward)}; a reward is one number"
            return f"{said}{_place(env, 'step')}"
    return error_text(error)


def is_reset(frames: traceback.StackSummary) -> bool:
    """Whether an error was raised in a `reset`, by its frames from the outermost."""
    return [frame.name for frame in _theirs(frames)[:1]] == ["reset"]


def environment_frames(frames: traceback.StackSummary) -> str:
    """Return the frames in an environment's own code, formatted like a traceback.

    Args:
        frames: From the outermost to the innermost. Calls that lead into the environment, in Nitro
            and Gymnasium's wrappers, are left out.

    Returns:
        Lines that begin with a line break; empty if no frame is the environment's.
    """
    inner = _theirs(frames)
    while len(inner) > 1 and inner[0].filename.startswith(_GYMNASIUM):
        inner = inner[1:]
    return "".join(
        f'\n  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n    {frame.line}'
        for frame in inner[-_MOST_FRAMES:]
    )


def _theirs(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames from the environment's method on, which Nitro called."""
    ours = [at for at, frame in enumerate(frames) if frame.filename.startswith(_OURS)]
    return frames[ours[-1] + 1 :] if ours else list(frames)


def _is_between(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN)


def _is_number(value: Any) -> bool:
    try:
        return np.ndim(value) == 0 and isinstance(float(value), float)
    except (TypeError, ValueError):
        return False


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80} ({type(value).__name__})"
    except Exception:  # its own code may raise anything
        return f"a {type(value).__name__}"


def _place(env: Env, method: str) -> str:
    """Return the location of an environment's method, formatted like a traceback line."""
    code = getattr(inspect.unwrap(getattr(type(env.unwrapped), method)), "__code__", None)
    if code is None:
        return ""
    return f'\n  File "{code.co_filename}", line {code.co_firstlineno}, in {method}'
