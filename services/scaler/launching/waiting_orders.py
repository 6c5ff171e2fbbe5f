"""Launch orders of plans that are written, or being written, and not answered yet.

A store may write a plan and fail to say so. Whoever asks for the round again is given what is
stored; the order made with it waits here, and goes out with the first answer, whoever gets it.
"""

import secrets
import threading

from services.scaler.launching.launches import LaunchOrder
from services.scaler.store.base import AttemptKey, PlannedAttempt


class WaitingOrders:
    """Hands out the order of every written plan once. Thread-safe.

    A plan is decided again when somebody else changed the job meanwhile, and several may be decided
    for one round at a time. One of them is written: the name that is stored with it tells which.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[AttemptKey, dict[str, LaunchOrder]] = {}

    def add(self, order: LaunchOrder) -> str:
        """Keep an order whose plan is about to be written; return its name."""
        name = secrets.token_hex(8)
        with self._lock:
            self._waiting.setdefault(order.key, {})[name] = order
        return name

    def take(self, written: PlannedAttempt) -> LaunchOrder | None:
        """Return a written plan's order; None when it was taken before, or by an earlier process.

        Orders of plans that were decided for the same launch and not written are dropped.
        """
        if written.order_name is None:
            return None
        with self._lock:
            return self._waiting.pop(written.key, {}).get(written.order_name)
