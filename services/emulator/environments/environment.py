"""One execution environment as the dispatcher sees it: idle, busy or lost."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

from services.emulator.invocation import Invocation

Peer = tuple[str, int]
"""Address and port of a client."""


class State(enum.StrEnum):
    """Where an environment stands; a lost one never comes back."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    LOST = "lost"


@dataclass(slots=True, kw_only=True, eq=False)
class Environment:
    """One environment, whoever started it."""

    name: str
    kill: Callable[[], None]
    """Ends it for good: kills its process group, or drops its connection."""
    settle_output: Callable[[], None] = lambda: None
    """Brings in what it has written so far."""
    max_memory_mb: Callable[[], int] = lambda: 0
    """Peak resident memory; 0 when the environment is out of sight."""
    started_at: float | None = None
    """`perf_counter` at its start; None when somebody else started it."""
    ready_at: float | None = None
    """`perf_counter` at its first poll."""
    state: State = State.STARTING
    served: int = 0
    let_go: bool = False
    """Whether it was ended for having idled too long."""
    declined: bool = False
    """Whether it ended to leave its invocation to another, by exit status 75 (`EX_TEMPFAIL`)."""
    connection: Peer | None = None
    """Peer of its latest poll."""
    poll: asyncio.Future[Invocation | None] | None = None
    """Its open long poll; resolves to None when there will be no invocation."""
    invocation: Invocation | None = None
    """Assigned to it, started or not."""

    @property
    def init_s(self) -> float | None:
        """How long it took from its start to its first poll, if known."""
        if self.started_at is None or self.ready_at is None:
            return None
        return self.ready_at - self.started_at
