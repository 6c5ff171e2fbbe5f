"""Fault injection: kinds of faults, their rates, and the seeded draws.

Each kind of fault has its own random stream, so enabling one does not change the draws of the
others. A run with the same seed has the same faults in the same order of invocations.
"""

import random

from pydantic import BaseModel, ConfigDict, Field


class FaultSettings(BaseModel):
    """The faults to inject; none by default. `PUT /emulator/faults` replaces all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seed: int = 0
    """Seed of the draws."""
    throttle_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an invocation is refused with 429."""
    throttle_next: int = Field(default=0, ge=0)
    """The next n invocations are refused with 429, regardless of the rate."""
    crash_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an invocation's environment is killed while it runs."""
    crash_next: int = Field(default=0, ge=0)
    """The next n invocations to start lose their environment, regardless of the rate."""
    crash_after_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Time from an invocation's start to the kill; an invocation that ended earlier is spared.
    0 kills before the function sees the event."""
    start_delay_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Delay of every accepted invocation before it may start (slow placement)."""
    duplicate_rate: float = Field(default=0.0, ge=0, le=1)
    """Probability in [0, 1] that an event is delivered twice."""
    provisioning_s: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Shortest time provisioned concurrency stays IN_PROGRESS."""


class Faults:
    """Draws faults: one seeded stream per kind, and counters for the `…_next` faults."""

    def __init__(self, settings: FaultSettings) -> None:
        self.replace(settings)

    def replace(self, settings: FaultSettings) -> None:
        """Reset streams and counters with new settings."""
        self._settings = settings
        self._dice = {
            kind: random.Random(f"{settings.seed}/{kind}")
            for kind in ("throttle", "crash", "duplicate")
        }
        self._next = {"throttle": settings.throttle_next, "crash": settings.crash_next}

    @property
    def settings(self) -> FaultSettings:
        """The settings, with the current counters."""
        left = {f"{kind}_next": number for kind, number in self._next.items()}
        return self._settings.model_copy(update=left)

    @property
    def start_delay_s(self) -> float:
        """Delay of every accepted invocation before it may start."""
        return self._settings.start_delay_ms / 1000

    def throttles(self) -> bool:
        """Decide whether this invocation is refused."""
        return self._strikes("throttle", self._settings.throttle_rate)

    def crash_delay_s(self) -> float | None:
        """Decide when this invocation's environment is killed; None if it is not."""
        crashes = self._strikes("crash", self._settings.crash_rate)
        return self._settings.crash_after_ms / 1000 if crashes else None

    def duplicates(self) -> bool:
        """Decide whether this event is delivered a second time."""
        return self._strikes("duplicate", self._settings.duplicate_rate)

    def _strikes(self, kind: str, rate: float) -> bool:
        # Draw even if a counter decides, so that later draws stay the same.
        drawn = self._dice[kind].random() < rate
        if self._next.get(kind, 0) > 0:
            self._next[kind] -= 1
            return True
        return drawn
