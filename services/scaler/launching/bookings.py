"""Outcomes of launches on their way into the store.

An outcome is heard of once. If the store refuses it, the round is never billed and its worst case
stays reserved, so it is kept and booked again: by the job's next plan, and after pauses for as long
as the process lives.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from services.scaler.launching.launches import OutcomeSink
from services.scaler.store.base import AttemptKey, LaunchOutcome, StoreError

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


class Bookings:
    """Books every outcome, however often the store refuses it. Thread-safe."""

    def __init__(self, book: OutcomeSink, pause: Callable[[float], bool]) -> None:
        """Wire it; nothing is started before it is needed.

        Args:
            book: Writes an outcome; harmless to repeat.
            pause: Waits so many seconds; returns False, at once, when the process is to end.
        """
        self._book = book
        self._pause = pause
        self._lock = threading.Lock()
        self._kept: dict[AttemptKey, LaunchOutcome] = {}
        self._trying = False

    def add(self, key: AttemptKey, outcome: LaunchOutcome) -> None:
        """Book an outcome now or, if the store refuses it, later."""
        if self._booked(key, outcome):
            return
        with self._lock:
            self._kept[key] = outcome
            if self._trying:
                return
            self._trying = True
        threading.Thread(target=self._try_again, name="bookings", daemon=True).start()

    def catch_up(self, job_id: str) -> None:
        """Try again now with what is kept of a job."""
        with self._lock:
            kept = [(key, outcome) for key, outcome in self._kept.items() if key[0] == job_id]
        self._book_kept(kept)

    def _try_again(self) -> None:
        """Book what is kept, one try after another, until nothing is."""
        pause_s = _FIRST_PAUSE_S
        while True:
            closing = not self._pause(pause_s)
            with self._lock:
                kept = list(self._kept.items())
            self._book_kept(kept)
            with self._lock:
                if closing or not self._kept:
                    self._trying = False
                    return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _book_kept(self, kept: Sequence[tuple[AttemptKey, LaunchOutcome]]) -> None:
        for key, outcome in kept:
            if self._booked(key, outcome):
                with self._lock:
                    self._kept.pop(key, None)

    def _booked(self, key: AttemptKey, outcome: LaunchOutcome) -> bool:
        try:
            self._book(key, outcome)
        except Exception as error:
            # Whatever went wrong: an outcome that is dropped here is lost.
            job_id, round_index, attempt, _ = key
            _LOG.warning(
                "outcome not booked yet",
                extra={"job": job_id, "round": round_index, "attempt": attempt, "why": str(error)},
                exc_info=None if isinstance(error, StoreError) else error,
            )
            return False
        return True
