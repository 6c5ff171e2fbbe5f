"""Detects a hanging environment from a separate thread.

The thread shares nothing with the watched code, so an environment may use signals and timers. It
polls the rollout's progress, so watching costs no time per step. It cannot interrupt hanging code;
its owner decides what to do.
"""

import contextlib
import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from functions.actor.errors import RolloutError
from shared.environments.interface import environment_frames

STEP_TIMEOUT_S = 30.0
"""Longest step, reset or construction by default: half of the function's own time-out."""
STEP = "no step or reset has ended"
CONSTRUCTION = "its constructor has not ended"
_LOOKS = 20
"""Polls per time-out: a hang is detected at most 5 % late."""
_BACKSTOP = 1.5
"""Number of time-outs after which the process ends even without a poll."""


class EnvironmentHungError(RolloutError):
    """No step, reset or construction ended in time."""


@dataclass(slots=True)
class Patience:
    """Time of the last change."""

    timeout_s: float
    seen: object
    since: float

    def is_over(self, latest: object, now: float) -> bool:
        """Poll once; return whether nothing has changed for too long."""
        if latest != self.seen:
            self.seen, self.since = latest, now
        return now - self.since >= self.timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """Watches code, one piece after the other.

    Attributes:
        timeout_s: Longest time without a change.
        give_up: Called in the watchdog's thread with the hanging code and its place, again after
            each further time-out if it returns.
        ends_process: Whether to end the process if a library holds the interpreter's lock. The
            interpreter then writes the place to standard error.
    """

    timeout_s: float
    give_up: Callable[[EnvironmentHungError], None]
    ends_process: bool = False

    @contextlib.contextmanager
    def watching(
        self, env_id: str, progress: Callable[[], object], *, awaited: str = STEP
    ) -> Iterator[None]:
        """Watch the body, which runs in the calling thread.

        Args:
            env_id: For the message.
            progress: Returns a value that differs after every step.
            awaited: The missing event when the time is over: `STEP` or `CONSTRUCTION`.
        """
        watched, over, ending = threading.get_ident(), threading.Event(), threading.Lock()
        patience = Patience(self.timeout_s, progress(), time.monotonic())

        def look() -> None:
            while not over.wait(self.timeout_s / _LOOKS):
                before = patience.since
                is_over = patience.is_over(progress(), time.monotonic())
                if patience.since != before:
                    self._set_backstop()
                with ending:
                    if is_over and not over.is_set():
                        self.give_up(self._error(env_id, watched, awaited))
                        patience.since = time.monotonic()

        self._set_backstop()
        thread = threading.Thread(target=look, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with ending:  # giving up is never interrupted halfway
                over.set()
            thread.join()
            if self.ends_process:
                faulthandler.cancel_dump_traceback_later()

    def _set_backstop(self) -> None:
        if self.ends_process:
            faulthandler.dump_traceback_later(self.timeout_s * _BACKSTOP, exit=True)

    def _error(self, env_id: str, thread: int, awaited: str) -> EnvironmentHungError:
        where = environment_frames(traceback.extract_stack(sys._current_frames().get(thread)))
        return EnvironmentHungError(
            f"{env_id}: {awaited} for {self.timeout_s:g} s, and was given up; if the environment "
            "is merely slow, raise NITRO_STEP_TIMEOUT_S (the function's own time-out must leave "
            f"room for it){where}"
        )


def watched(
    watchdog: Watchdog | None, env_id: str, progress: Callable[[], object]
) -> contextlib.AbstractContextManager[None]:
    """Watch the body, if there is a watchdog."""
    return contextlib.nullcontext() if watchdog is None else watchdog.watching(env_id, progress)
