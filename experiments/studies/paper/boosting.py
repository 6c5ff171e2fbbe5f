"""Boosting at chosen rounds (Figures 2 and 7).

Ten rounds of one actor, and one of them with 16: the round with the lowest, the median and the
highest convexity ratio R of the run without boosting. Equal seeds give equal bits, so every scheme
has the same policy up to its boosted round, as the paper's replay of checkpoints has. Gain is the
return after the round less the return before it, evaluated after every round.
"""

from collections.abc import Sequence
from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import ATARI, HOPPER, MUJOCO, CellId, Grid, Scale, job_body, schedule
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import curve, environments, runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import interval, verdict

_ROUNDS, _BOOST = 10, 16
_BASE, _ALWAYS = "one actor", "always boosted"
_SCHEMES = ("lowest R", "median R", "highest R")


def plan(scale: Scale, done: Done) -> Grid:
    """The run without boosting first; its ratios choose the rounds."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id in scale.of((*MUJOCO, *ATARI), (HOPPER,)):
            body = job_body(scale, env_id, rounds=_ROUNDS, actors=(1, _BOOST), evaluate_every=1)
            body["actors"] = {"min": 1, "max": _BOOST}
            for name, counts in ((_BASE, [1]), (_ALWAYS, [_BOOST])):
                grid.add_job(name, env_id, seed, {**body, "scaling": schedule(counts)})
            base = done.get(CellId(_BASE, env_id, seed))
            if base is not None:
                for name, index in zip(_SCHEMES, chosen_rounds(base), strict=True):
                    counts = [1] * index + [_BOOST, 1]
                    grid.add_job(name, env_id, seed, {**body, "scaling": schedule(counts)})
    return grid


def chosen_rounds(base: JobOutcome) -> tuple[int, int, int]:
    """Return the rounds with the lowest, the median and the highest ratio.

    The first round has none, so it is never chosen; with too few rounds they may be the same.
    """
    known = sorted((r.ratio, k) for k, r in enumerate(base.rounds) if r.ratio is not None)
    if not known:
        return (0, 0, 0)
    return known[0][1], known[len(known) // 2][1], known[-1][1]


def gains(found: Sequence[JobOutcome]) -> list[tuple[float, float | None]]:
    """Return what the boosted round of each run added to the return and, if known, to the ratio."""
    result = []
    for run in found:
        k = max(range(len(run.rounds)), key=lambda index: run.rounds[index].num_actors)
        reward = run.return_after(k + 1) - run.return_after(k)
        before = run.rounds[k].ratio
        after = run.rounds[k + 1].ratio if k + 1 < len(run.rounds) else None
        gain = None if before is None or after is None else after - before
        result.append((reward, gain))
    return result


def find(_scale: Scale, done: Done) -> Findings:
    """Gains of the three schemes."""
    envs = environments(done)
    rows: list[tuple[Value, ...]] = []
    claims = []
    for env_id in envs:
        found = [gains(runs(done, name, env_id)) for name in _SCHEMES]
        for name, pairs in zip(_SCHEMES, found, strict=True):
            ratios = [ratio for _, ratio in pairs if ratio is not None]
            gained = str(interval(ratios)) if ratios else None
            reward = str(interval([gain for gain, _ in pairs]))
            rows.append((env_id, name, len(pairs), reward, gained))
        low, high = (interval([reward for reward, _ in found[i]]) for i in (0, -1))
        claims.append(
            Claim(
                paper="Boosting where R is lowest gains the most reward",
                ours=f"{env_id}: {low} at the lowest R, {high} at the highest",
                verdict=verdict(low, high),
            )
        )
    return Findings(
        panels=(*(_curves(done, env_id) for env_id in envs), _gain_bars(done, envs)),
        tables=(
            Table(
                title="Gains of the boosted round",
                columns=("environment", "boosted at", "runs", "reward gain", "R gain"),
                rows=tuple(rows),
            ),
        ),
        claims=tuple(claims),
    )


def _curves(done: Done, env_id: str) -> Panel:
    series = []
    for name in (_BASE, *_SCHEMES, _ALWAYS):
        found = runs(done, name, env_id)
        x = [float(e.updates) for e in found[0].evaluations]
        y = [fmean(run.return_after(int(point)) for run in found) for point in x]
        series.append(Series(label=name, x=tuple(x), y=tuple(y)))
    return Panel(
        title=env_id, x_label="policy updates", y_label="mean return", series=tuple(series)
    )


def _gain_bars(done: Done, envs: Sequence[str]) -> Panel:
    series = [
        curve(
            name,
            range(len(envs)),
            [[gain for gain, _ in gains(runs(done, name, env_id))] for env_id in envs],
        )
        for name in _SCHEMES
    ]
    return Panel(
        title="Reward gain",
        x_label="",
        y_label="return after less before",
        kind="bar",
        series=tuple(series),
        categories=tuple(envs),
    )


EXPERIMENT = Experiment(
    name="boosting",
    title="Boosting at chosen rounds",
    paper="Figures 2 and 7",
    plan=plan,
    find=find,
)
