"""Errors of a rollout for the caller."""

import traceback
from pathlib import Path
from typing import Any

import gymnasium

import shared
from shared.environments.interface import what_went_wrong

DIVERGED = "action is not finite at step {step} (policy diverged)"
_OURS = (*map(str, shared.__path__), str(Path(__file__).parents[1]))
_GYMNASIUM = str(Path(gymnasium.__file__).parent)
_MOST_FRAMES = 4
"""Number of innermost frames to show; the message has to fit into a reply."""


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message names the environment and the step."""


def environment_frames(frames: traceback.StackSummary) -> str:
    """Return the frames in an environment's own code, formatted like a traceback.

    Args:
        frames: From the outermost to the innermost. Calls that lead into the environment, in Nitro
            and Gymnasium's wrappers, are left out.

    Returns:
        Lines that begin with a line break; empty if no frame is the environment's.
    """
    ours = [at for at, frame in enumerate(frames) if frame.filename.startswith(_OURS)]
    inner = frames[ours[-1] + 1 :] if ours else list(frames)
    while len(inner) > 1 and inner[0].filename.startswith(_GYMNASIUM):
        inner = inner[1:]
    return "".join(
        f'\n  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n    {frame.line}'
        for frame in inner[-_MOST_FRAMES:]
    )


def rollout_failure(
    env_id: str, env: gymnasium.Env[Any, Any], step: int, error: Exception
) -> RolloutError:
    """Return the error of an environment that raised at a step."""
    where = environment_frames(traceback.extract_tb(error.__traceback__))
    why = what_went_wrong(error, env)
    return RolloutError(f"{env_id} failed at step {step}: {why}{where}")
