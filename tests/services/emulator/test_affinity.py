"""Which environment runs which invocation: its like's, but nobody waits long for that."""

from collections import deque

import pytest

from services.emulator.affinity import Affinity, kind_of_event
from services.emulator.environments.environment import Environment
from services.emulator.invocation import Invocation

ONE, TWO = (Environment(name=name, kill=lambda: None) for name in ("one", "two"))


def waiting(*kinds: str) -> deque[Invocation]:
    return deque(
        Invocation(request_id="r", payload=b"{}", arn="", version="1", trace_id="", kind=kind)
        for kind in kinds
    )


def paired(affinity: Affinity, queue: deque[Invocation], *idle: Environment) -> tuple[str, str]:
    free = [*idle]
    invocation, environment = affinity.pair(queue, free)
    assert len(free) == len(idle) - 1
    assert invocation not in queue
    return invocation.kind, environment.name


def test_an_invocation_goes_where_its_like_went() -> None:
    affinity = Affinity()
    assert paired(affinity, waiting("a"), ONE, TWO) == ("a", "two")  # used last, and warmest
    assert paired(affinity, waiting("b"), ONE) == ("b", "one")
    for _ in range(3):
        assert paired(affinity, waiting("a"), TWO, ONE) == ("a", "two")
        assert paired(affinity, waiting("a", "b"), ONE) == ("b", "one")
    assert paired(affinity, waiting("a"), ONE) == ("a", "one")  # the other one is busy
    assert paired(affinity, waiting("a"), ONE, TWO) == ("a", "one")


def test_without_a_kind_it_is_first_come_first_served() -> None:
    affinity, queue = Affinity(), waiting("", "", "")
    first, second, third = queue
    for expected in (first, second, third):
        assert affinity.pair(queue, [ONE, TWO]) == (expected, TWO)


def test_nobody_is_overtaken_for_ever() -> None:
    affinity, queue = Affinity(), waiting("new")
    affinity.pair(waiting("mine"), [ONE])
    overtaken = 0
    while queue and overtaken < 100:
        queue += waiting("mine")
        overtaken += affinity.pair(queue, [ONE])[0].kind == "mine"
        if not any(each.kind == "new" for each in queue):
            break
    assert overtaken == 15


@pytest.mark.parametrize(
    ("payload", "kind"),
    [(b'{"a": 1, "b": "x", "c": 2}', '[1, "x"]'), (b'{"a": 1}', "[1, null]"), (b"[1]", "")],
)
def test_events_are_alike_by_the_fields_that_are_named(payload: bytes, kind: str) -> None:
    assert kind_of_event(payload, ("a", "b")) == kind
    assert kind_of_event(payload, ()) == ""
