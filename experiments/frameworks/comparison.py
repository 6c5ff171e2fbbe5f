"""A framework's own sampler beside Nitro's actors: the grid, and what its outcomes say."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.experiment import Done, Experiment
from experiments.frameworks.cells import (
    Framework,
    FrameworkOutcome,
    FrameworkTask,
    Sampler,
    make,
    usd_of,
)
from experiments.grid import Grid, Scale
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table
from experiments.reporting.statistics import FEWEST_RUNS, Interval, interval
from nitro.planning.prices import cost_basis
from shared.deployment.config import NitroConfig

CONDITIONS: dict[Sampler, str] = {"own": "its own sampler", "nitro": "Nitro's actors"}
_ACTORS = 8
_UPDATES_BETWEEN_EVALUATIONS = 14
_EPISODES = 10
_POINTS = 11
_CLAIM = "With Nitro's actors the framework learns as it does with its own sampler (ours)"


def framework_experiment(
    framework: Framework,
    name: str,
    *,
    title: str,
    paper: str,
    updates: int,
    minibatch: int,
    epochs: int,
    env_id: str = "Hopper-v4",
    quick_env_id: str = "CartPole-v1",
    fragment: int = 256,
    starts: str = "they go on from one update to the next",
) -> Experiment:
    """Return the experiment of one framework, of so many updates a run.

    Args:
        framework: Its name here.
        name: Of the experiment.
        title: Of the experiment.
        paper: Figures that it answers.
        updates: Of one run.
        minibatch: Steps of a gradient.
        epochs: Passes over the steps of an update.
        env_id: The environment.
        quick_env_id: That of a quick run.
        fragment: Steps of each of 8 environments between two updates.
        starts: What episodes do, in both conditions.
    """
    update = _ACTORS * fragment  # steps

    def plan(scale: Scale, _done: Done) -> Grid:
        grid = Grid()
        for seed in range(scale.seeds):
            for sampler, condition in CONDITIONS.items():
                task = FrameworkTask(
                    framework=framework,
                    env_id=scale.of(env_id, quick_env_id),
                    seed=seed,
                    sampler=sampler,
                    steps=scale.of(updates * update, 512),
                    num_actors=scale.of(_ACTORS, 2),
                    fragment=scale.of(fragment, 64),
                    evaluate_every_steps=scale.of(_UPDATES_BETWEEN_EVALUATIONS * update, 256),
                    episodes=scale.of(_EPISODES, 2),
                    minibatch=minibatch,
                    epochs=scale.of(epochs, 1),
                )
                grid.add(condition, task.env_id, seed, task)
        return grid

    return Experiment(
        name=name,
        title=title,
        paper=paper,
        plan=plan,
        find=lambda _scale, done: findings(done, starts=starts),
        seeds=3,
        task=FrameworkTask,
        outcome=FrameworkOutcome,
        work=make,
    )


def findings(done: Done, *, starts: str) -> Findings:
    """Return curves over steps and dollars, a table, and whether both samplers learn alike."""
    usd_per_cpu_s = _usd_per_cpu_s()
    panels: list[Panel] = []
    tables, claims = [], []
    for env_id in dict.fromkeys(key.env_id for key in done):
        found = {
            condition: made
            for condition in CONDITIONS.values()
            if (made := _runs(done, condition, env_id))
        }
        panels += [_by_steps(env_id, found), _by_usd(env_id, found, usd_per_cpu_s)]
        tables.append(_table(env_id, found, usd_per_cpu_s))
        if len(found) == len(CONDITIONS):
            claims.append(_claim(env_id, found))
    return Findings(
        panels=tuple(panels),
        tables=tuple(tables),
        claims=tuple(claims),
        notes=(
            f"Both have the same hyper-parameters, evaluations and rule for episodes: {starts}.",
            "Dollars: Nitro's job as projected to AWS, and the processor time of the framework's "
            "process at the price of a core of a server (c7i). A server is taken to be used fully.",
        ),
    )


def _usd_per_cpu_s() -> float:
    """Return the price of a second of one core of a server."""
    return cost_basis(NitroConfig()).prices.server_usd_per_s("c7i.xlarge") / 4


def _runs(done: Done, condition: str, env_id: str) -> list[FrameworkOutcome]:
    return [o for k, o in done.items() if (k.condition, k.env_id) == (condition, env_id)]


def _curve(
    label: str, x: Sequence[float], made: Sequence[FrameworkOutcome], at: Callable[..., float]
) -> Series:
    points = [interval([at(run, place) for run in made]) for place in x]
    return Series(
        label=label,
        x=tuple(x),
        y=tuple(p.value for p in points),
        low=tuple(p.low for p in points),
        high=tuple(p.high for p in points),
    )


def _by_steps(env_id: str, found: dict[str, list[FrameworkOutcome]]) -> Panel:
    series = []
    for condition, made in found.items():
        most = min(run.last.env_steps for run in made)
        grid = np.linspace(0.0, most, _POINTS).tolist()
        series.append(_curve(condition, grid, made, FrameworkOutcome.return_after))
    return Panel(
        title=env_id,
        x_label="environment steps",
        y_label="return (interquartile mean)",
        series=tuple(series),
    )


def _by_usd(env_id: str, found: dict[str, list[FrameworkOutcome]], usd_per_cpu_s: float) -> Panel:
    def at(run: FrameworkOutcome, usd: float) -> float:
        return run.return_at_usd(usd, usd_per_cpu_s=usd_per_cpu_s)

    series = []
    for condition, made in found.items():
        most = min(usd_of(run.last, usd_per_cpu_s=usd_per_cpu_s) for run in made)
        series.append(_curve(condition, np.linspace(0.0, most, _POINTS).tolist(), made, at))
    return Panel(
        title=env_id,
        x_label="projected cost (USD)",
        y_label="return (interquartile mean)",
        series=tuple(series),
    )


def _table(env_id: str, found: dict[str, list[FrameworkOutcome]], usd_per_cpu_s: float) -> Table:
    every = [run for made in found.values() for run in made]
    steps = min((run.last.env_steps for run in every), default=0)
    usd = min((usd_of(run.last, usd_per_cpu_s=usd_per_cpu_s) for run in every), default=0.0)
    rows = []
    for condition, made in found.items():
        at_usd = [run.return_at_usd(usd, usd_per_cpu_s=usd_per_cpu_s) for run in made]
        rows.append(
            (
                condition,
                len(made),
                str(interval([run.return_after(steps) for run in made])),
                str(interval(at_usd)),
                str(interval([usd_of(run.last, usd_per_cpu_s=usd_per_cpu_s) for run in made])),
                str(interval([run.last.cpu_s for run in made])),
            )
        )
    columns = (
        "sampler",
        "runs",
        f"return after {steps:,} steps",
        f"return at ${usd:.4f}",
        "cost (USD)",
        "framework's processor time (s)",
    )
    return Table(title=env_id, columns=columns, rows=tuple(rows))


def _claim(env_id: str, found: dict[str, list[FrameworkOutcome]]) -> Claim:
    own, ours = (found[condition] for condition in CONDITIONS.values())
    steps = min(run.last.env_steps for run in (*own, *ours))
    theirs, mine = (interval([run.return_after(steps) for run in made]) for made in (own, ours))
    text = f"{env_id}, after {steps:,} steps: its own sampler {theirs}, Nitro's actors {mine}"
    return Claim(paper=_CLAIM, ours=text, verdict=alike(mine, theirs))


def alike(one: Interval, other: Interval) -> str:
    """Say whether two intervals overlap; of fewer than four runs each, that shows little."""
    if min(one.runs, other.runs) < 2:  # of one run an interval is a point
        return "not decided: too few runs"
    overlap = one.low <= other.high and other.low <= one.high
    few = "" if min(one.runs, other.runs) >= FEWEST_RUNS else ", of few runs"
    if overlap:
        return f"the intervals overlap{few}"
    return "does not hold: the intervals are apart" if not few else f"the intervals are apart{few}"
