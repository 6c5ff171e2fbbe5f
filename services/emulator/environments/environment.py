"""One execution environment as the dispatcher sees it: idle, busy or lost."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

from services.emulator.invocation import Invocation

Peer = tuple[str, int]
"""Address and port of a client."""


class State(enum.StrEnum):
    """An environment's state; `LOST` is final."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    LOST = "lost"


@dataclass(slots=True, kw_only=True, eq=False)
class Environment:
    """One environment, started by the emulator or elsewhere."""

    name: str
    kill: Callable[[], None]
    """Ends it: kills its process group, or drops its connection."""
    settle_output: Callable[[], None] = lambda: None
    """Reads its output so far."""
    max_memory_mb: Callable[[], int] = lambda: 0
    """Peak resident memory; 0 if unknown."""
    started_at: float | None = None
    """`perf_counter` at its start; None if it was started elsewhere."""
    ready_at: float | None = None
    """`perf_counter` at its first poll."""
    state: State = State.STARTING
    served: int = 0
    let_go: bool = False
    """Whether it was ended for exceeding the idle time."""
    declined: bool = False
    """Whether it declined its invocation, by exit status 75 (`EX_TEMPFAIL`)."""
    connection: Peer | None = None
    """Peer of its latest poll."""
    poll: asyncio.Future[Invocation | None] | None = None
    """Its open long poll; resolves to None if there will be no invocation."""
    invocation: Invocation | None = None
    """Its assigned invocation, started or not."""

    @property
    def init_s(self) -> float | None:
        """Time from its start to its first poll, if known."""
        if self.started_at is None or self.ready_at is None:
            return None
        return self.ready_at - self.started_at
