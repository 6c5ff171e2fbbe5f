"""Wrappers whose state is known: added by `gymnasium.make`, allowed in jobs, or Nitro's own."""

from collections import deque
from typing import Any

import numpy as np
from gymnasium import spaces, wrappers

from shared.environments.action_mask import ActionMask
from shared.environments.adapters import (
    ChannelsFirst,
    FlatAction,
    PartsObservation,
    VectorObservation,
)
from shared.environments.as_image import AsImage
from shared.environments.bound_action import BoundAction
from shared.environments.leave_out import LeaveOut
from shared.environments.state.keeper import (
    STATELESS,
    Arrays,
    Keeper,
    number,
    optional,
    require_shape,
)
from shared.trajectory import codec


def _get_elapsed(limit: Any) -> Arrays:  # noqa: ANN401 - private attributes of the library's
    return {"elapsed": optional(limit._elapsed_steps)}


def _set_elapsed(limit: Any, state: Arrays) -> None:  # noqa: ANN401
    limit._elapsed_steps = number("elapsed", state["elapsed"])


def _get_order(order: Any) -> Arrays:  # noqa: ANN401
    return {"has_reset": np.array(order._has_reset)}


def _set_order(order: Any, state: Arrays) -> None:  # noqa: ANN401
    order._has_reset = number("has_reset", state["has_reset"])


def _get_time(time: wrappers.TimeAwareObservation[Any, Any, Any]) -> Arrays:
    return {"timesteps": optional(getattr(time, "timesteps", None))}


def _set_time(time: wrappers.TimeAwareObservation[Any, Any, Any], state: Arrays) -> None:
    time.timesteps = number("timesteps", state["timesteps"])


def _get_stack(stack: wrappers.FrameStackObservation[Any, Any, Any]) -> Arrays:
    space = stack.env.observation_space
    rows = np.stack(
        [np.asarray(spaces.flatten(space, observation)) for observation in stack.obs_queue]
    )
    # Integers of types that the codec does not support have at most 32 bits.
    return {"queue": rows if rows.dtype in codec.DTYPES else rows.astype(np.float64)}


def _set_stack(stack: wrappers.FrameStackObservation[Any, Any, Any], state: Arrays) -> None:
    space, rows = stack.env.observation_space, state["queue"]
    require_shape("queue", rows, (stack.stack_size, spaces.flatdim(space)))
    queue = (spaces.unflatten(space, row) for row in rows)
    stack.obs_queue = deque(queue, maxlen=stack.stack_size)


def _get_sticky(sticky: wrappers.StickyAction[Any, Any]) -> Arrays:
    last = optional(sticky.last_action)
    if not isinstance(sticky.action_space, spaces.Box):
        last = last.astype(np.int64)  # the codec may not support a discrete space's type
    counts = [sticky.is_sticky_actions, sticky.num_repeats, sticky.repeats_taken]
    return {"last": last, "counts": np.array(counts)}


def _set_sticky(sticky: wrappers.StickyAction[Any, Any], state: Arrays) -> None:
    last, counts, space = state["last"], state["counts"], sticky.action_space
    require_shape("counts", counts, (3,))
    if last.size:
        require_shape("last", last, space.shape or ())
    is_sticky, sticky.num_repeats, sticky.repeats_taken = counts.tolist()
    sticky.is_sticky_actions = bool(is_sticky)
    sticky.last_action = None
    if last.size:
        # A policy's continuous actions keep their own type, which may differ from the space's.
        sticky.last_action = (
            last[()] if isinstance(space, spaces.Box) else last.astype(space.dtype)[()]
        )


def _set_checked(checker: Any, _state: Arrays) -> None:  # noqa: ANN401
    """Skip the checks: they compare with a reset or step that this checker has not seen."""
    checker.checked_reset = checker.checked_step = checker.checked_data_reuse = True


WRAPPERS: dict[type, Keeper] = {
    PartsObservation: STATELESS,
    VectorObservation: STATELESS,
    ChannelsFirst: STATELESS,
    FlatAction: STATELESS,
    wrappers.TimeLimit: Keeper(_get_elapsed, _set_elapsed),
    wrappers.OrderEnforcing: Keeper(_get_order, _set_order),
    wrappers.PassiveEnvChecker: Keeper(STATELESS.get, _set_checked),
    ActionMask: STATELESS,
    AsImage: STATELESS,
    BoundAction: STATELESS,
    LeaveOut: STATELESS,
    wrappers.ClipReward: STATELESS,
    wrappers.FlattenObservation: STATELESS,
    wrappers.GrayscaleObservation: STATELESS,
    wrappers.RescaleObservation: STATELESS,
    wrappers.FrameStackObservation: Keeper(_get_stack, _set_stack),
    wrappers.StickyAction: Keeper(_get_sticky, _set_sticky),
    wrappers.TimeAwareObservation: Keeper(_get_time, _set_time),
}
"""By exact type: a subclass may keep more."""
