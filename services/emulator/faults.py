"""Faults on purpose: what goes wrong, how often, and the seeded dice that decide it.

Every kind of fault has its own random stream, so switching one on leaves the draws of the others
as they were, and a run with the same seed sees the same faults in the same order of invocations.
"""

import random

from pydantic import BaseModel, ConfigDict, Field


class FaultSettings(BaseModel):
    """What to break; the default breaks nothing. `PUT /emulator/faults` replaces all of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: int = 0
    """Seed of the dice."""
    throttle_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an invocation is refused with 429."""
    throttle_next: int = Field(default=0, ge=0)
    """The next n invocations are refused with 429 whatever the rate."""
    crash_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an invocation's environment is killed while it runs."""
    crash_next: int = Field(default=0, ge=0)
    """The next n invocations to start lose their environment whatever the rate."""
    crash_after_ms: float = Field(default=0.0, ge=0)
    """Time from an invocation's start to the kill; an invocation that ended earlier is spared.
    0 kills before the function sees the event."""
    start_delay_ms: float = Field(default=0.0, ge=0)
    """Time every accepted invocation waits before it may start (slow placement)."""
    duplicate_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an event is delivered a second time after the first."""
    provisioning_s: float = Field(default=0.1, ge=0)
    """Shortest time provisioned concurrency stays IN_PROGRESS."""


class Faults:
    """The dice: one seeded stream per kind of fault, and counters for the `…_next` faults."""

    def __init__(self, settings: FaultSettings) -> None:
        self.replace(settings)

    def replace(self, settings: FaultSettings) -> None:
        """Start over with other settings: fresh streams, fresh counters."""
        self._settings = settings
        self._throttle = random.Random(f"{settings.seed}/throttle")
        self._crash = random.Random(f"{settings.seed}/crash")
        self._duplicate = random.Random(f"{settings.seed}/duplicate")
        self._throttle_next = settings.throttle_next
        self._crash_next = settings.crash_next

    @property
    def settings(self) -> FaultSettings:
        """Settings with the counters as they stand now."""
        return self._settings.model_copy(
            update={"throttle_next": self._throttle_next, "crash_next": self._crash_next}
        )

    @property
    def start_delay_s(self) -> float:
        """Wait of every accepted invocation before it may start."""
        return self._settings.start_delay_ms / 1000

    @property
    def provisioning_s(self) -> float:
        """Shortest time provisioned concurrency stays IN_PROGRESS."""
        return self._settings.provisioning_s

    def throttles(self) -> bool:
        """Decide whether this invocation is refused."""
        drawn = self._throttle.random() < self._settings.throttle_rate
        if self._throttle_next > 0:
            self._throttle_next -= 1
            return True
        return drawn

    def crash_delay_s(self) -> float | None:
        """Decide when this invocation's environment is killed; None when it is spared."""
        drawn = self._crash.random() < self._settings.crash_rate
        if self._crash_next > 0:
            self._crash_next -= 1
            drawn = True
        return self._settings.crash_after_ms / 1000 if drawn else None

    def duplicates(self) -> bool:
        """Decide whether this event is delivered a second time."""
        return self._duplicate.random() < self._settings.duplicate_rate
