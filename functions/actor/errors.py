"""Errors of a rollout for the caller."""

import traceback
from typing import Any

import gymnasium

from shared.environments.interface import environment_frames, what_went_wrong

DIVERGED = "action is not finite at step {step} (policy diverged)"


class RolloutError(RuntimeError):
    """The environment or the policy failed; the message names the environment and the step."""


def rollout_failure(
    env_id: str, env: gymnasium.Env[Any, Any], step: int, error: Exception
) -> RolloutError:
    """Return the error of an environment that raised after so many steps.

    Its message counts steps from 1, as all messages do.
    """
    where = environment_frames(traceback.extract_tb(error.__traceback__))
    why = what_went_wrong(error, env)
    return RolloutError(f"{env_id} failed at step {step + 1}: {why}{where}")
