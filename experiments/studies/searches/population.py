"""How many directions of ARS a step is worth: fixed numbers beside one chosen by the noise scale.

An iteration has an actor for each episode, so its seconds hardly depend on the number of
directions, and its dollars grow with it. Episodes are played in this process. Seconds and dollars
are computed from their lengths, not measured, so they are the same on any machine.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
from pydantic import JsonValue

from benchmarks.environment import describe_environment
from experiments.experiment import Done, Experiment
from experiments.grid import Cell, Grid, Scale, first
from experiments.outcome import Evaluation, JobOutcome, RoundOutcome
from experiments.reporting.comparison import (
    actors_by_round,
    comparison_table,
    conditions,
    environments,
    returns_by_usd,
    runs,
)
from experiments.reporting.findings import Claim, Findings, Table, Value
from experiments.reporting.statistics import interval, verdict
from experiments.studies.searches.population_player import Average, Player
from shared.contracts.message import Message, PositiveInt
from shared.hyperparameters.ars import ArsHyperparameters

_FIXED = (2, 8, 32)
_ADAPTIVE = "noise scale, 2 to 32"
_STEPS: Mapping[str, int] = {"Swimmer-": 400_000, "Hopper-": 400_000}
"""After which no iteration begins, by prefix of the environment's name."""
_PAPER: Mapping[str, Mapping[str, JsonValue]] = {
    "Swimmer-": {"step_size": 0.02, "exploration_std": 0.01, "observation_normalisation": False},
    "Hopper-": {"step_size": 0.01, "exploration_std": 0.025, "reward_offset": 1.0},
}
"""Values of arXiv 1803.07055, tables 9 and 10. Jobs of `nitro train` have others in Swimmer."""
_VERSION = "v5"
_EVALUATIONS = 10
_CLAIM = "A number of directions chosen by the noise scale learns more at equal {equal}"


class Population(Message):
    """Training with ARS."""

    rule: ArsHyperparameters
    adaptive: bool
    """Whether the noise scale chooses the directions of each iteration but the first."""
    total_steps: PositiveInt


def plan(scale: Scale, _done: Done) -> Grid:
    """Each number and the adaptive one, with the paper's values otherwise."""
    grid = Grid()
    for seed in range(scale.seeds):
        for prefix, steps in first(scale, tuple(_STEPS.items())):
            for number in scale.of(_FIXED, _FIXED[:1]):
                rule = ArsHyperparameters.model_validate({**_PAPER[prefix], "directions": number})
                task = Population(rule=rule, adaptive=False, total_steps=scale.of(steps, 5000))
                grid.add(f"{number} directions", f"{prefix}{_VERSION}", seed, task)
                if number == scale.of(_FIXED[1], _FIXED[0]):
                    chosen = task.model_copy(update={"adaptive": True})
                    grid.add(_ADAPTIVE, f"{prefix}{_VERSION}", seed, chosen)
    return grid


def train(cell: Cell) -> JobOutcome:
    """Train until the steps are spent, with ten evaluations on the way."""
    task, begun = cell.task, time.monotonic()
    assert isinstance(task, Population)
    player = Player(cell.id.env_id, task.rule, seed=cell.id.seed)
    rounds, evaluations = list[RoundOutcome](), list[Evaluation]()
    steps, usd, scale, number = 0, 0.0, Average(), task.rule.directions
    while steps < task.total_steps:
        made, found = player.iterate(number, scale)
        rounds.append(made)
        steps, usd = steps + made.env_steps, usd + made.cost_usd
        if task.adaptive and found is not None:
            number = round(np.clip(found, _FIXED[0], _FIXED[-1]))
        if steps >= task.total_steps * (len(evaluations) + 1) / _EVALUATIONS:
            mean = player.evaluate()
            evaluations.append(
                Evaluation(updates=len(rounds), env_steps=steps, cost_usd=usd, mean_return=mean)
            )
    return JobOutcome(
        rounds=tuple(rounds),
        evaluations=tuple(evaluations),
        stop_reason=None,
        total_usd=usd,
        by_item={},
        lambda_gb_s=0.0,
        lambda_requests=sum(each.num_actors for each in rounds),
        projected_wall_s=sum(each.timing.total_s for each in rounds),
        serverful=(),
        assumptions=(),
        wall_s=time.monotonic() - begun,
        environment=describe_environment(),
    )


def find(_scale: Scale, done: Done) -> Findings:
    """Returns at equal dollars and equal seconds."""
    panels, tables, claims = [], [], list[Claim]()
    for env_id in environments(done):
        panels += [returns_by_usd(done, env_id), actors_by_round(done, env_id)]
        tables += [_seconds_table(done, env_id), comparison_table(done, env_id)]
        claims += _claims(done, env_id)
    return Findings(panels=tuple(panels), tables=tuple(tables), claims=tuple(claims))


def _common(done: Done, env_id: str) -> tuple[float, float]:
    """Return the most dollars and seconds that every run has spent."""
    made = [run for key, run in done.items() if key.env_id == env_id]
    return min(run.total_usd for run in made), min(run.projected_wall_s for run in made)


def _seconds_table(done: Done, env_id: str) -> Table:
    usd, seconds = _common(done, env_id)
    rows: list[tuple[Value, ...]] = []
    for name in conditions(done, env_id):
        made = runs(done, name, env_id)
        scales = [each.score for run in made for each in run.rounds if each.score is not None]
        rows.append(
            (
                name,
                str(interval([run.return_at_usd(usd) for run in made])),
                str(interval([run.return_at_seconds(seconds) for run in made])),
                str(interval([run.final_return for run in made])),
                f"{np.median(scales):.0f}" if scales else None,
            )
        )
    return Table(
        title=f"{env_id}: returns at equal dollars and seconds",
        columns=(
            "condition",
            f"at ${usd:.4f}",
            f"after {seconds:.1f} s",
            "after all steps",
            "noise scale, median",
        ),
        rows=tuple(rows),
    )


def _claims(done: Done, env_id: str) -> list[Claim]:
    usd, seconds = _common(done, env_id)
    ways: dict[str, Callable[[JobOutcome], float]] = {
        "dollars": lambda run: run.return_at_usd(usd),
        "seconds": lambda run: run.return_at_seconds(seconds),
    }
    claims = []
    for equal, of in ways.items():
        found = {
            name: interval([of(run) for run in runs(done, name, env_id)])
            for name in conditions(done, env_id)
        }
        ours = found.pop(_ADAPTIVE, None)
        if ours is None or not found:
            continue
        rival = max(found, key=lambda name: found[name].value)
        text = f"{env_id}: {ours}, best of the fixed ({rival}) {found[rival]}"
        claims.append(
            Claim(paper=_CLAIM.format(equal=equal), ours=text, verdict=verdict(ours, found[rival]))
        )
    return claims


EXPERIMENT = Experiment(
    name="population",
    title="How many directions a step of ARS is worth",
    paper="none: it has no evolution strategies",
    plan=plan,
    find=find,
    seeds=2,
    task=Population,
    outcome=JobOutcome,
    work=train,
)
