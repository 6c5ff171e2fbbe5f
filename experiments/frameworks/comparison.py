"""A framework's own sampler beside Nitro's actors: the grid, and what its outcomes say."""

from collections.abc import Mapping

import numpy as np

from experiments.experiment import Done, Experiment
from experiments.frameworks.cells import FrameworkOutcome, make
from experiments.frameworks.pricing import Price, prices
from experiments.frameworks.telling import Framework, FrameworkTask, Sampler
from experiments.grid import Grid, Scale
from experiments.reporting.comparison import curve
from experiments.reporting.findings import Claim, Findings, Panel, Table, Value
from experiments.reporting.statistics import FEWEST_RUNS, Interval, interval

CONDITIONS: dict[Sampler, str] = {"own": "its own sampler", "nitro": "Nitro's actors"}
_ACTORS = (8, 2)
"""Of a full run, and of a quick one."""
_QUICK_FRAGMENT = 64
_EVALUATIONS = 7
"""Of one run, besides that before any training."""
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
    update = _ACTORS[0] * fragment  # steps

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
                    num_actors=scale.of(*_ACTORS),
                    fragment=scale.of(fragment, _QUICK_FRAGMENT),
                    evaluate_every_steps=scale.of(updates // _EVALUATIONS * update, 256),
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
        find=lambda scale, done: findings(
            done,
            starts=starts,
            num_actors=scale.of(*_ACTORS),
            fragment=scale.of(fragment, _QUICK_FRAGMENT),
        ),
        seeds=3,
        task=FrameworkTask,
        outcome=FrameworkOutcome,
        work=make,
    )


def findings(done: Done, *, starts: str, num_actors: int, fragment: int) -> Findings:
    """Return curves over steps and dollars, a table, and whether both samplers learn alike.

    Environments whose durations are not calibrated have no dollars.
    """
    panels: list[Panel] = []
    tables, claims = [], []
    for env_id in dict.fromkeys(key.env_id for key in done):
        found = {
            condition: made
            for condition in CONDITIONS.values()
            if (made := _runs(done, condition, env_id))
        }
        by_sampler = prices(env_id, num_actors=num_actors, fragment=fragment) or {}
        priced = {CONDITIONS[sampler]: price for sampler, price in by_sampler.items()}
        panels.append(_by_steps(env_id, found))
        if priced:
            panels.append(_by_usd(env_id, found, priced))
        tables.append(_table(env_id, found, priced))
        if len(found) == len(CONDITIONS):
            claims.append(_claim(env_id, found))
    return Findings(
        panels=tuple(panels),
        tables=tuple(tables),
        claims=tuple(claims),
        notes=(
            f"Both have the same hyper-parameters, evaluations and rule for episodes: {starts}.",
            "Dollars: the processor time of the framework's process at the price of a core of a "
            "server (c7i), and Nitro's job as projected to AWS. A server is taken to be used "
            "fully. Nitro's job follows from counts: its rounds and steps times durations that "
            "were calibrated on one core, the framework's processor time between them.",
        ),
    )


def _runs(done: Done, condition: str, env_id: str) -> list[FrameworkOutcome]:
    return [o for k, o in done.items() if (k.condition, k.env_id) == (condition, env_id)]


def _by_steps(env_id: str, found: dict[str, list[FrameworkOutcome]]) -> Panel:
    series = []
    for condition, made in found.items():
        most = min(run.last.env_steps for run in made)
        grid = np.linspace(0.0, most, _POINTS).tolist()
        series.append(curve(condition, grid, [[r.return_after(at) for r in made] for at in grid]))
    return Panel(
        title=env_id,
        x_label="environment steps",
        y_label="return (interquartile mean)",
        series=tuple(series),
    )


def _by_usd(
    env_id: str, found: dict[str, list[FrameworkOutcome]], priced: Mapping[str, Price]
) -> Panel:
    series = []
    for condition, made in found.items():
        price = priced[condition]
        grid = np.linspace(0.0, min(price(run.last) for run in made), _POINTS).tolist()
        returns = [[run.return_at_usd(usd, price) for run in made] for usd in grid]
        series.append(curve(condition, grid, returns))
    return Panel(
        title=env_id,
        x_label="projected cost (USD)",
        y_label="return (interquartile mean)",
        series=tuple(series),
    )


def _table(
    env_id: str, found: dict[str, list[FrameworkOutcome]], priced: Mapping[str, Price]
) -> Table:
    steps = min((run.last.env_steps for made in found.values() for run in made), default=0)
    columns = ["sampler", "runs", f"return after {steps:,} steps"]
    rows: dict[str, list[Value]] = {
        condition: [condition, len(made), str(interval([r.return_after(steps) for r in made]))]
        for condition, made in found.items()
    }
    if priced:
        spent = {name: [priced[name](r.last) for r in made] for name, made in found.items()}
        usd = min(min(each) for each in spent.values())
        columns += [f"return at ${usd:.4f}", "cost (USD)"]
        for name, made in found.items():
            at_usd = interval([run.return_at_usd(usd, priced[name]) for run in made])
            rows[name] += [str(at_usd), str(interval(spent[name]))]
    columns.append("framework's processor time (s)")
    for name, made in found.items():
        rows[name].append(str(interval([run.last.cpu_s for run in made])))
    return Table(title=env_id, columns=tuple(columns), rows=tuple(map(tuple, rows.values())))


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
