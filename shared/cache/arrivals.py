"""What the cache tells a learner about an actor, and the text that Redis holds of it.

A *field* names a claim, `sample:3`, and a *token* of the same text announces it. Of an actor that
failed both say in which attempt at the round, how and why: `sample:3:0:lost:crashed`. Beside the
fields of a round's actors lie its counters, and notes of what came late, whose names have no colon.

Like all that comes from the cache, text that is neither is refused and changes nothing.
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

_LOG = logging.getLogger(__name__)

Mode = Literal["sample", "evaluate"]

FailureKind = Literal["lost", "environment", "hung", "vanished"]
"""`environment`: it raised or broke its own rules, and with the same seed would do so again;
`hung`: a step of it did not end; `vanished`: it, or what it brought, went with a part of the system
that ended, and was given no fair chance; `lost`: anything else."""

FAILURE_KINDS: dict[str, FailureKind] = {
    "RolloutError": "environment",
    "UnsupportedEnvironment": "environment",
    "EnvironmentHungError": "hung",
    "PolicyGoneError": "vanished",
    "StartsGoneError": "vanished",
    "WeightsGoneError": "vanished",
    "CacheUnreachableError": "vanished",
}
"""What a failure is by the name of the exception that the function raised; others are `lost`."""

MAX_REASON_CHARS = 1500
"""A failure's reason is cut to this length: it holds the last lines of a traceback."""
_TOKEN = re.compile(
    rb"(?P<mode>sample|evaluate):(?P<index>[0-9]{1,9})"
    rb"(?::(?P<attempt>[0-9]{1,9}):(?P<kind>lost|environment|hung|vanished):(?P<reason>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One actor is done: its result is stored, or it will never come."""

    mode: Mode
    actor_index: int
    failed: str | None
    """Why there will be no result; None when it is stored."""
    attempt: int = 0
    """The attempt at the round in which it failed; 0 for a result, whichever brought it."""
    kind: FailureKind = "lost"
    """How it failed; without meaning for a result."""


def claim_field(mode: Mode, actor_index: int) -> str:
    """Return the field of an actor's claim, which is the token of its success too."""
    return f"{mode}:{actor_index}"


def failure_token(
    mode: Mode, actor_index: int, *, attempt: int, reason: str, kind: FailureKind = "lost"
) -> bytes:
    """Return the token, and the field, of an actor that will bring nothing."""
    why = reason[:MAX_REASON_CHARS] or "no reason given"
    return f"{claim_field(mode, actor_index)}:{attempt}:{kind}:{why}".encode("utf-8", "replace")


def arrivals_of(tokens: Iterable[bytes]) -> list[Arrival]:
    """Return what tokens, or actors' fields, say, without those that say nothing."""
    return [arrival for token in tokens if (arrival := arrival_of(token)) is not None]


def arrival_of(token: bytes) -> Arrival | None:
    """Return what a token, or an actor's field, says; None when it is neither."""
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
    """Return what a round's fields say of its actors, one arrival each, in index order.

    Of one that failed and yet delivered the result counts, of failures the latest attempt's.
    """
    found: dict[tuple[Mode, int], Arrival] = {}
    for arrival in arrivals_of(field for field in fields if b":" in field):
        key = (arrival.mode, arrival.actor_index)
        found[key] = max(found.get(key, arrival), arrival, key=_weight)
    return [found[key] for key in sorted(found)]


def _weight(arrival: Arrival) -> tuple[bool, int]:
    return arrival.failed is None, arrival.attempt
