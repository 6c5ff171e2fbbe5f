"""Errors of a rollout for the caller."""

import traceback
from typing import Any

import gymnasium

from shared.environments.interface import environment_frames, is_reset, what_went_wrong

DIVERGED = "action is not finite at step {step} (policy diverged)"


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message says where."""


def rollout_failure(
    env_id: str, env: gymnasium.Env[Any, Any], step: int, error: Exception
) -> RolloutError:
    """Return the error of an environment that raised after so many steps.

    Its message counts steps from 1, as all messages do.
    """
    frames = traceback.extract_tb(error.__traceback__)
    when = "in reset" if is_reset(frames) else f"at step {step + 1}"
    why = what_went_wrong(error, env)
    return RolloutError(f"{env_id} failed {when}: {why}{environment_frames(frames)}")
