"""Arrivals: an actor's outcome for the learner, and its text in Redis.

A *field* names a claim, `sample:3`, and a *token* with the same text announces it. For a failed
actor both contain the attempt, the kind and the reason: `sample:3:0:lost:crashed`. The names of a
round's counters and late markers have no colon.

Any other text is ignored, like all invalid data from the cache.
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

_LOG = logging.getLogger(__name__)

Mode = Literal["sample", "search", "evaluate"]
"""`search`: a part of a search's iteration, whose index is its number in the round."""

FailureKind = Literal["lost", "environment", "hung", "vanished"]
"""`environment`: the environment raised or broke the interface, and would again with the same seed.
`hung`: a step did not end. `vanished`: the actor or its result was lost with a part of the system,
through no fault of its own. `lost`: anything else.
"""

FAILURE_KINDS: dict[str, FailureKind] = {
    "RolloutError": "environment",
    "UnsupportedEnvironment": "environment",
    "EnvironmentHungError": "hung",
    "PolicyGoneError": "vanished",
    "StartsGoneError": "vanished",
    "WeightsGoneError": "vanished",
    "CacheUnreachableError": "vanished",
}
"""Kinds of failure by the name of the function's exception; all others are `lost`."""

MAX_REASON_CHARS = 1500
"""Longest reason of a failure, enough for the last lines of a traceback."""
_TOKEN = re.compile(
    rb"(?P<mode>sample|search|evaluate):(?P<index>[0-9]{1,9})"
    rb"(?::(?P<attempt>[0-9]{1,9}):(?P<kind>lost|environment|hung|vanished):(?P<reason>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A finished actor: its result is stored, or will never arrive."""

    mode: Mode
    actor_index: int
    failed: str | None
    """Why there is no result; None if it is stored."""
    attempt: int = 0
    """The attempt in which it failed; 0 for a result."""
    kind: FailureKind = "lost"
    """The kind of failure; unused for a result."""


def claim_field(mode: Mode, actor_index: int) -> str:
    """Return the field of an actor's claim, which is also the token of its success."""
    return f"{mode}:{actor_index}"


def failure_token(
    mode: Mode, actor_index: int, *, attempt: int, reason: str, kind: FailureKind = "lost"
) -> bytes:
    """Return the token, and the field, of a failed actor."""
    why = reason[:MAX_REASON_CHARS] or "no reason given"
    return f"{claim_field(mode, actor_index)}:{attempt}:{kind}:{why}".encode("utf-8", "replace")


def arrivals_of(tokens: Iterable[bytes]) -> list[Arrival]:
    """Parse tokens or actors' fields, skipping invalid ones."""
    return [arrival for token in tokens if (arrival := arrival_of(token)) is not None]


def arrival_of(token: bytes) -> Arrival | None:
    """Parse a token or an actor's field; None if it is neither."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        _LOG.warning("no actor's token", extra={"text": token[:80]})
        return None
    mode, index = cast("Mode", found["mode"].decode()), int(found["index"])
    if found["attempt"] is None:
        return Arrival(mode, index, None)
    kind = cast("FailureKind", found["kind"].decode())
    reason = found["reason"].decode("utf-8", "replace")
    return Arrival(mode, index, reason, int(found["attempt"]), kind)


def answered(fields: Iterable[bytes]) -> list[Arrival]:
    """Return one arrival for each actor from a round's fields, in index order.

    A result wins over failures, and the latest attempt's failure over earlier ones.
    """
    found: dict[tuple[Mode, int], Arrival] = {}
    for arrival in arrivals_of(field for field in fields if b":" in field):
        key = (arrival.mode, arrival.actor_index)
        found[key] = max(found.get(key, arrival), arrival, key=_weight)
    return [found[key] for key in sorted(found)]


def _weight(arrival: Arrival) -> tuple[bool, int]:
    return arrival.failed is None, arrival.attempt
