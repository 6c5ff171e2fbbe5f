"""What the cache tells a learner about an actor, and the text that Redis holds of it.

A *field* names a claim, `sample:3`; a *token* announces it, with the reason where it failed:
`sample:3:crashed`, which is a field as well. Beside the fields of a round's actors lie its
counters, whose names have no colon.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

Mode = Literal["sample", "evaluate"]

MAX_REASON_CHARS = 300
"""A failure's reason is cut to this length."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One actor is done: its result is stored, or it will never come."""

    mode: Mode
    actor_index: int
    failed: str | None
    """Why there will be no result; None when it is stored."""


def claim_field(mode: Mode, actor_index: int) -> str:
    """Return the field of an actor's claim, which is the token of its success too."""
    return f"{mode}:{actor_index}"


def failure_token(mode: Mode, actor_index: int, reason: str) -> bytes:
    """Return the token of an actor that will bring nothing."""
    token = f"{claim_field(mode, actor_index)}:{reason[:MAX_REASON_CHARS] or 'no reason given'}"
    return token.encode("utf-8", "replace")


def arrival_of(token: bytes) -> Arrival:
    """Return what a token, or an actor's field, says."""
    mode, index, *reason = token.decode("utf-8", "replace").split(":", 2)
    return Arrival(cast("Mode", mode), int(index), reason[0] if reason else None)


def answered(fields: Iterable[bytes]) -> list[Arrival]:
    """Return what a round's fields say of its actors, one arrival each, in index order.

    Of one that failed and yet delivered the result counts, of several failures one.
    """
    found: dict[tuple[Mode, int], Arrival] = {}
    for arrival in (arrival_of(field) for field in sorted(fields) if b":" in field):
        # The field of a result is the beginning of all others, and so comes first.
        found.setdefault((arrival.mode, arrival.actor_index), arrival)
    return [found[key] for key in sorted(found)]
