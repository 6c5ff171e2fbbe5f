"""Ends a rollout whose environment hangs, with an error instead of the function's time-out.

A timer's signal looks from time to time whether the rollout got on, so that a step costs nothing
for being watched. It reaches whatever Python code an environment runs or sleeps in; a library
that never returns to Python is ended by the function's own time-out.
"""

import contextlib
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from functions.actor.errors import RolloutError, environment_frames

STEP_TIMEOUT_S = 30.0
"""Longest step, reset or construction by default: half of the function's own time-out."""
STEP = "no step or reset has ended"
CONSTRUCTION = "its constructor has not ended"
CLOSING = "closing it has not ended"
_LOOKS = 20
"""Looks per time-out: a rollout that hangs is ended at most a twentieth of it late."""


class EnvironmentHungError(RolloutError):
    """No step, reset or construction ended in time."""


@contextlib.contextmanager
def watched(
    env_id: str, progress: Callable[[], object], *, timeout_s: float, awaited: str = STEP
) -> Iterator[None]:
    """Raise in the body when nothing has changed for too long.

    Does nothing outside the main thread, which alone receives signals.

    Args:
        env_id: For the message.
        progress: Returns something that differs after every step.
        timeout_s: Longest time without a change.
        awaited: What has not happened then, `STEP`, `CONSTRUCTION` or `CLOSING`.

    Raises:
        EnvironmentHungError: Nothing has changed for `timeout_s`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen, since = progress(), time.monotonic()

    def look(signum: int, frame: FrameType | None) -> None:
        nonlocal seen, since
        now, latest = time.monotonic(), progress()
        if latest != seen:
            seen, since = latest, now
        elif now - since >= timeout_s:
            where = environment_frames(traceback.extract_stack(frame))
            raise EnvironmentHungError(
                f"{env_id}: {awaited} for {timeout_s:g} s, and was given up; if "
                "the environment is merely slow, raise NITRO_STEP_TIMEOUT_S (the function's own "
                f"time-out must leave room for it){where}"
            )

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, timeout_s / _LOOKS, timeout_s / _LOOKS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
