"""Choosing among the ways to train: the Pareto front, recommendations, and a verdict on serverless.

A way is on the front unless another one is as fast and as cheap. Serverless is the right tool if it
is on the front and gains enough: 20 % of the time of the fastest other way, or 20 % of the dollars
of the cheapest server if this machine is slower. Its dollars plus the value of its time must also
be lower than for every other way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nitro.planning.ways import Way
from shared.money.prices import SECONDS_PER_HOUR

_GAIN = 0.8
"""The largest share of the time, or of the dollars, that justifies another tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Recommendations by criterion."""

    cheapest: Way
    balanced: Way
    """The least sum of dollars and value of time."""
    fastest: Way
    front: tuple[Way, ...]
    """In order of time."""
    serverless_pays: bool
    verdict: str
    """The verdict on serverless, in words."""


def choose(ways: Sequence[Way], *, usd_per_hour: float) -> Choice:
    """Choose among ways; ties go to the first.

    Args:
        ways: At least one that is not serverless.
        usd_per_hour: Value of an hour's wait.
    """

    def spent_usd(way: Way) -> float:
        return way.usd + usd_per_hour * way.wall_s / SECONDS_PER_HOUR

    front = pareto_front(ways)
    pays, verdict = _verdict(ways, front, spent_usd)
    return Choice(
        cheapest=min(ways, key=lambda way: (way.usd, way.wall_s)),
        balanced=min(ways, key=spent_usd),
        fastest=min(ways, key=lambda way: (way.wall_s, way.usd)),
        front=front,
        serverless_pays=pays,
        verdict=verdict,
    )


def pareto_front(ways: Sequence[Way]) -> tuple[Way, ...]:
    """Return the Pareto front of time and cost, in order of time."""
    front: list[Way] = []
    for way in sorted(ways, key=lambda way: (way.wall_s, way.usd)):
        if not front or way.usd < front[-1].usd:
            front.append(way)
    return tuple(front)


def _verdict(
    ways: Sequence[Way], front: Sequence[Way], spent_usd: Callable[[Way], float]
) -> tuple[bool, str]:
    """Return whether serverless pays, and the verdict in words.

    Args:
        ways: All.
        front: Ways on the Pareto front, in order of time.
        spent_usd: A way's dollars plus the value of its time.
    """
    others = [way for way in ways if way.place != "serverless"]
    others_usd = min(map(spent_usd, others))
    offered = [w for w in front if w.place == "serverless" and spent_usd(w) < others_usd]
    fastest = min(others, key=lambda way: (way.wall_s, way.usd))
    if offered and offered[0].wall_s <= _GAIN * fastest.wall_s:
        return True, (
            f"Serverless pays here: {_told(offered[0])}. The fastest other way: {_told(fastest)}."
        )
    cheapest = min((w for w in others if w.place == "server"), key=lambda w: w.usd, default=None)
    for way in reversed(offered):
        if cheapest is not None and way.usd <= _GAIN * cheapest.usd:
            return True, (
                f"Serverless pays here: {_told(way)}. The cheapest server: {_told(cheapest)}."
            )
    best = min(
        (way for way in ways if way.place == "serverless"),
        key=spent_usd,
        default=None,
    )
    if best is None:
        return False, (
            "Serverless is the wrong tool here: an actor's share of a round, or an evaluation "
            f"episode, exceeds Lambda's time limit. The fastest other way: {_told(fastest)}."
        )
    return False, (
        f"Serverless is the wrong tool here: at best {_told(best)}. The fastest other way: "
        f"{_told(fastest)}. Serverless may still pay for bursts of many jobs."
    )


def _told(way: Way) -> str:
    who = way.name
    if way.place == "serverless":
        learner = {"functions": "learner functions"}.get(
            way.learner, f"a {way.learner.upper()} learner"
        )
        who = f"{way.num_actors:,} actors with {learner}"
    return f"{who}, {minutes(way.wall_s)} min and ${way.usd:.3f}"


def minutes(seconds: float) -> str:
    """Format minutes for a person.

    >>> minutes(30.0), minutes(754.0), minutes(600_000.0)
    ('0.5', '12.6', '10,000')
    """
    value = seconds / 60.0
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
