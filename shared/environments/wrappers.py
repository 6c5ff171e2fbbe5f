"""Wrappers that a job may name: an allow-list, so that no job can import code.

A user's package adds its wrappers with `register_wrapper`. A wrapper must carry nothing from one
episode to the next: a rollout may depend on its task alone. Wrappers with running statistics are
therefore left out; the learner normalises instead (hyper-parameters `observation_normalisation`
and `reward_scaling`). Gymnasium's `MaxAndSkipObservation` is left out as well, because its frames
outlive a reset; a game skips frames by its option `frame_skip`.
"""

import difflib
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import wrappers

from shared.contracts.environment_ref import WrapperRef
from shared.environments.action_mask import ActionMask
from shared.environments.as_image import AsImage
from shared.environments.bound_action import BoundAction
from shared.environments.leave_out import LeaveOut
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.told_errors import error_text

Env = gymnasium.Env[Any, Any]
MakeWrapper = Callable[..., Env]
"""Takes the environment, then keyword arguments: booleans, numbers or strings."""


_REGISTERED: dict[str, MakeWrapper] = {
    "ActionMask": ActionMask,
    "AsImage": AsImage,
    "BoundAction": BoundAction,
    "ClipReward": wrappers.ClipReward,
    "FlattenObservation": wrappers.FlattenObservation,
    "FrameStackObservation": wrappers.FrameStackObservation,
    "GrayscaleObservation": wrappers.GrayscaleObservation,
    "LeaveOut": LeaveOut,
    "RescaleObservation": wrappers.RescaleObservation,
    "StickyAction": wrappers.StickyAction,
    "TimeAwareObservation": wrappers.TimeAwareObservation,
}


def register_wrapper(name: str, make: MakeWrapper) -> None:
    """Let jobs name a wrapper; called while a package of environments is imported.

    Raises:
        ValueError: The name is taken.
    """
    if _REGISTERED.setdefault(name, make) is not make:
        raise ValueError(f"there is a wrapper {name!r} already: choose another name")


def wrapped(env: Env, refs: tuple[WrapperRef, ...], *, raw_rewards: bool = False) -> Env:
    """Return the environment in its wrappers, the first innermost.

    With `raw_rewards`, wrappers that change only rewards are left out.

    Raises:
        UnsupportedEnvironment: A name is not registered, or a wrapper does not take the
            environment or a keyword argument.
    """
    for i, ref in enumerate(refs):
        make = _REGISTERED.get(ref.name)
        if make is None:
            near = difflib.get_close_matches(ref.name, sorted(_REGISTERED), n=3, cutoff=0.5)
            hint = (
                f"did you mean {', '.join(near)}?"
                if near
                else f"there are: {', '.join(sorted(_REGISTERED))}"
            )
            raise UnsupportedEnvironment(
                f"wrappers.{i}.name {ref.name!r} is no registered wrapper; {hint}"
            )
        try:
            kwargs: dict[str, Any] = {**ref.kwargs}
            outer = make(env, **kwargs)
        except Exception as error:  # a wrapper's constructor may raise anything
            given = f" with {ref.kwargs}" if ref.kwargs else ""
            raise UnsupportedEnvironment(
                f"wrappers.{i}: {ref.name} cannot be put around the environment{given}: "
                f"{error_text(error)}"
            ) from error
        env = _without_reward_wrappers(outer, env) if raw_rewards else outer
    return env


def _without_reward_wrappers(outer: Env, env: Env) -> Env:
    """Return a wrapped environment without its outermost reward wrappers.

    One name may stand for several wrappers. The inner ones may change the policy's observations.
    """
    while outer is not env and isinstance(outer, gymnasium.RewardWrapper):
        outer = outer.env
    return outer
