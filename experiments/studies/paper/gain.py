"""Gain of a boosted round by when it comes and how large it is (Figure 9).

The round with the lowest R of every ten rounds of a run with one actor, boosted 4, 8, 16 and 32
times. A boosted run ends after that round, where its gain is known.
"""

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, CellId, Grid, Scale, job_body, schedule
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import Interval, interval, verdict
from experiments.studies.paper.boosting import gains

_BASE = "one actor"
_SIZES = (4, 8, 16, 32)
_ROUNDS, _STRETCH = 50, 10


def plan(scale: Scale, done: Done) -> Grid:
    """The run without boosting first; its ratios choose the rounds."""
    grid = Grid()
    sizes = scale.of(_SIZES, _SIZES[:2])
    body = job_body(scale, HOPPER, rounds=_ROUNDS, evaluate_every=1)
    body["actors"] = {"min": 1, "max": max(sizes)}
    for seed in range(scale.seeds):
        grid.add_job(_BASE, HOPPER, seed, {**body, "scaling": schedule([1])})
        base = done.get(CellId(_BASE, HOPPER, seed))
        if base is None:
            continue
        for place, index in enumerate(lowest_rounds(base)):
            for times in sizes:
                counts = schedule([1] * index + [times])
                shorter = job_body(scale, HOPPER, rounds=index + 1, evaluate_every=1)
                job = {**body, "scaling": counts, "stop": shorter["stop"]}
                grid.add_job(_name(place, times), HOPPER, seed, job)
    return grid


def _name(place: int, times: int) -> str:
    return f"stretch {place}, {times}x"


def lowest_rounds(base: JobOutcome) -> list[int]:
    """Return the round with the lowest ratio of every ten; stretches without a ratio have none."""
    found = []
    for start in range(0, len(base.rounds), _STRETCH):
        known = [
            (r.ratio, start + k)
            for k, r in enumerate(base.rounds[start : start + _STRETCH])
            if r.ratio is not None
        ]
        if known:
            found.append(min(known)[1])
    return found


def find(scale: Scale, done: Done) -> Findings:
    """Gain, and gain per unit of boosting, over when the boost came."""
    sizes = scale.of(_SIZES, _SIZES[:2])
    places = range(max(len(lowest_rounds(o)) for k, o in done.items() if k.condition == _BASE))
    gain = {(p, t): _gain(done, p, t) for p in places for t in sizes}
    most = max(abs(g.value) / t for (_, t), g in gain.items()) or 1.0
    rows: list[tuple[Value, ...]] = [
        (f"{p * _STRETCH} to {(p + 1) * _STRETCH - 1}", f"{t}x", g.runs, str(g), g.value / t / most)
        for (p, t), g in gain.items()
    ]
    largest = sizes[-1]
    early, late = gain[0, largest], gain[places[-1], largest]
    return Findings(
        panels=(
            _panel("Reward gain", "return after less before", gain, dict.fromkeys(sizes, 1.0)),
            _panel("Efficiency", "gain per actor, normalised", gain, {t: t * most for t in sizes}),
        ),
        tables=(
            Table(
                title="Gain by round and size",
                columns=("rounds", "boost", "runs", "reward gain", "efficiency"),
                rows=tuple(rows),
            ),
        ),
        claims=(
            Claim(
                paper="Gain and efficiency of boosting fall through training",
                ours=f"{largest}x: {early} in the first stretch, {late} in the last",
                verdict=verdict(early, late),
            ),
        ),
    )


def _gain(done: Done, place: int, times: int) -> Interval:
    return interval([reward for reward, _ in gains(runs(done, _name(place, times), HOPPER))])


def _panel(
    title: str, label: str, gain: dict[tuple[int, int], Interval], divisors: dict[int, float]
) -> Panel:
    series = []
    for times, divisor in divisors.items():
        points = [(p * _STRETCH, g) for (p, t), g in gain.items() if t == times]
        series.append(
            Series(
                label=f"{times}x",
                x=tuple(x for x, _ in points),
                y=tuple(g.value / divisor for _, g in points),
                low=tuple(g.low / divisor for _, g in points),
                high=tuple(g.high / divisor for _, g in points),
            )
        )
    return Panel(title=title, x_label="boosted from round", y_label=label, series=tuple(series))


EXPERIMENT = Experiment(
    name="gain",
    title="Gain of boosting by round and size",
    paper="Figure 9",
    plan=plan,
    find=find,
    seeds=5,
)
