"""Assigns invocations to environments, preferably the one that last ran a similar event.

A function may cache its state after an event and continue from it with the next event of that kind.
Lambda does not promise affinity. On one machine the few environments are known, so an invocation
goes to the environment that last ran its kind, if that environment is idle or next to be idle. At
most `_PATIENCE` later invocations overtake a waiting one.
"""

import json
from collections import deque
from collections.abc import Sequence
from itertools import islice

from services.emulator.environments.environment import Environment
from services.emulator.invocation import Invocation

_PATIENCE = 16
"""Most invocations that may overtake the longest waiting one."""
_MOST_KINDS = 4096


def kind_of_event(payload: bytes, fields: Sequence[str]) -> str:
    """Return a key that is equal for events with equal `fields`; empty without fields."""
    event = json.loads(payload) if fields else None
    return json.dumps([event.get(name) for name in fields]) if isinstance(event, dict) else ""


class Affinity:
    """Pairs waiting invocations with idle environments."""

    def __init__(self) -> None:
        self._latest: dict[str, Environment] = {}
        """The environment that ran the latest event of each kind."""
        self._overtaken = 0

    def pair(
        self, queue: deque[Invocation], idle: list[Environment]
    ) -> tuple[Invocation, Environment]:
        """Remove and return an invocation and its environment; neither collection may be empty."""
        invocation, environment = queue[0], idle[-1]  # the last used environment is the warmest
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
