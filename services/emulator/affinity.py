"""Which environment an invocation runs on: the one that ran its like, where that costs nothing.

A function may keep what it computed for an event, and go on from there with the next event of that
kind. Lambda promises nothing of the sort. On one machine the few environments are known, so an
invocation goes to the one that ran its like last, if that is idle or will be next. Nobody waits
longer for it than for `_PATIENCE` others.
"""

import json
from collections import deque
from collections.abc import Sequence
from itertools import islice

from services.emulator.environments.environment import Environment
from services.emulator.invocation import Invocation

_PATIENCE = 16
"""Invocations that may overtake the one that waits longest."""
_MOST_KINDS = 4096


def kind_of_event(payload: bytes, fields: Sequence[str]) -> str:
    """Return what is equal for events that are alike in some fields; empty where none are named."""
    event = json.loads(payload) if fields else None
    return json.dumps([event.get(name) for name in fields]) if isinstance(event, dict) else ""


class Affinity:
    """Pairs what waits with who idles."""

    def __init__(self) -> None:
        self._latest: dict[str, Environment] = {}
        """The environment that ran the latest event of each kind."""
        self._overtaken = 0

    def pair(
        self, queue: deque[Invocation], idle: list[Environment]
    ) -> tuple[Invocation, Environment]:
        """Take an invocation and the environment it is to run on; neither may be empty."""
        invocation, environment = queue[0], idle[-1]  # the one used last is the warmest
        patience = _PATIENCE - self._overtaken
        for waiting in islice(queue, max(1, patience)):
            latest = self._latest.get(waiting.kind)
            if latest in idle:
                invocation, environment = waiting, latest
                break
        self._overtaken = 0 if invocation is queue[0] else self._overtaken + 1
        queue.remove(invocation)
        idle.remove(environment)
        if invocation.kind:
            self._latest.pop(invocation.kind, None)
            self._latest[invocation.kind] = environment
        if len(self._latest) > _MOST_KINDS:
            del self._latest[next(iter(self._latest))]
        return invocation, environment
