"""Dollars and seconds to a return: which number of actors, and which policy, is worth its money.

Every run ends at its environment's return, or counts as dearer than all others if it has not come
there within a million steps. Runs are made once. They are priced as the paper's deployment, as
Nitro's with either learner, and as if the simulator were slow. In each of these regimes a policy's
regret is its dollars over those of the best fixed number: it is worth having where its worst regret
is smaller than every fixed number's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.default_bill import bill_table
from experiments.experiment import Done, Experiment
from experiments.grid import Scale
from experiments.outcome import JobOutcome, Outcomes
from experiments.reporting.comparison import conditions, runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.repricing import (
    Estimate,
    Made,
    Regime,
    censored_median,
    on_best_server,
    on_own_cores,
    regrets,
    reprice,
)
from experiments.studies.money.calibration import PAPER as PAPER_PRESET
from experiments.studies.money.calibration import STANDARD, durations, minibatches_of
from experiments.studies.money.dollars_grid import (
    EQUAL_STEPS,
    FIXED,
    MARGINAL,
    MOST_STEPS,
    NITRO,
    PAPER,
    REVERSED,
    TARGETS,
    WIDER,
    fixed_name,
    plan,
    updates_needed,
)
from nitro.planning.prices import cost_basis
from shared.deployment.config import NitroConfig
from shared.deployment.machines import LEARNER_START_S
from shared.money.one_server import BOOT_S

_CPU = "CPU learner"
_PAPER_WARM = 64
_WITH_NOISE = 5 / 3
"""Measurements of `marginal`: its noise scale takes two thirds of what curvature does (decision
031)."""
_SLOW_STEP_S = 0.021
"""On one core: what highway-fast-v0 takes (examples/highway_env)."""
_BILLED = "Hopper-v4"
"""Environment whose default job is billed item by item."""
_FEWEST_RUNS = 6
"""Of what a claim compares: of fewer, even from the lowest to the highest run a median's interval
has less than 95 %."""
_TOO_FEW = "not decided: too few runs"
_MARGINAL = "A policy by marginal value has the smallest worst regret (not the paper's)"
_PROMISE = "Nitro costs less than its rivals for the same reward (section 8)"


def regimes() -> tuple[Regime, ...]:
    """Return the prices runs are compared at, the paper's deployment first."""
    basis = cost_basis(NitroConfig())
    papers = replace(
        basis,
        learner_usd_per_s=basis.prices.learner_usd_per_s("p3.2xlarge"),
        provisioned=_PAPER_WARM,
    )
    gpu_s, cpu_s = LEARNER_START_S["gpu"], LEARNER_START_S["cpu"]
    on_cpu = Regime(name=_CPU, basis=basis.with_learner("cpu"), learner="cpu", start_s=cpu_s)
    return (
        Regime(name="the paper's deployment", basis=papers, learner="gpu", start_s=gpu_s),
        Regime(name="GPU learner", basis=basis, learner="gpu", start_s=gpu_s),
        on_cpu,
        replace(on_cpu, name="CPU learner, slow simulator", extra_step_s=_SLOW_STEP_S),
    )


def find(scale: Scale, done: Done) -> Findings:
    """Dollars and seconds to the return in every regime, and every policy's regret."""
    found = regimes()
    on_cpu = next(each for each in found if each.name == _CPU)
    numbers = tuple(fixed_name(n) for n in scale.of(FIXED, (2, 4)))
    panels, tables, claims = [], [bill_table(_BILLED, durations(_BILLED, STANDARD))], []
    for env_id in (env_id for env_id in TARGETS if conditions(done, env_id)):
        usd = {regime.name: _spent(done, env_id, regime) for regime in found}
        panels.append(_panel(env_id, usd))
        tables.append(_table(done, env_id, on_cpu, usd))
        if set(numbers) & set(conditions(done, env_id)):
            rounds = {each.name: _spent(done, env_id, replace(each, start_s=0.0)) for each in found}
            tables.append(_regret_table(env_id, rounds, numbers))
            tables.append(_started_table(done, env_id, on_cpu, [usd[_CPU], rounds[_CPU]]))
            claims += _claims(env_id, rounds, numbers)
    notes = (
        "A condition's dollars and seconds are medians over its runs with 95 % bootstrap "
        "intervals; `never`: half of the runs or more did not have the return within a million "
        "steps. In the picture, an interval that ends with `never` ends at twice the dearest "
        "median.",
        f"Returns: {', '.join(f'{env} {target:g}' for env, target in TARGETS.items())}, in an "
        "evaluation of five episodes. Fixed numbers are evaluated every 32,768 steps; policies "
        "that choose, every four rounds.",
        "Times and dollars are counts of each run times durations of one core, measured in CPU "
        "time by the experiment `calibration`. So they do not depend on how busy the machine was. "
        "A GPU's updates are faster by what was recorded of an H200, those on two cores by what "
        "decision 018 has.",
        "The start of the learner's machine, or of the server, is paid for. Of each run it is "
        f"{', '.join(_start_told(regime) for regime in found[:3])}. Regrets are those of the "
        "rounds alone, as the start is the same for all. An environment that a round is the first "
        f"to need is taken to start for {on_cpu.basis.cold_start_s:g} seconds, a server for "
        f"{BOOT_S:g}.",
        "Policies that choose are looked at more often than fixed numbers, so they have more "
        "chances that five episodes go well.",
        f"The slow simulator is priced as if every step of training took {1000 * _SLOW_STEP_S:g} "
        "ms more of one core; the learning is that of the environment itself.",
        f"`{PAPER}`: its preset and policy; in the first regime also its machine and "
        f"{_PAPER_WARM} environments kept warm. All other conditions have preset `standard`.",
        f"`{REVERSED}`: the actors that `{NITRO}` had with the same seed until its return, the "
        "last first; then as many as it began with.",
    )
    return Findings(panels=tuple(panels), tables=tuple(tables), claims=tuple(claims), notes=notes)


def _start_told(regime: Regime) -> str:
    usd = regime.start_s * regime.basis.learner_usd_per_s
    return f"${usd:.4f} ({regime.name})"


Spending = Mapping[str, Mapping[str, list[float]]]
"""Dollars to the return of each run, by regime and condition; infinite where it was not reached."""


def _spent(
    done: Outcomes, env_id: str, regime: Regime, *, seconds: bool = False
) -> dict[str, list[float]]:
    return {
        name: [
            _to_return(run, env_id, name, regime, seconds=seconds)
            for run in runs(done, name, env_id)
        ]
        for name in conditions(done, env_id)
    }


def _to_return(
    run: JobOutcome, env_id: str, condition: str, regime: Regime, *, seconds: bool
) -> float:
    updates = updates_needed(run, env_id)
    if updates is None:
        return math.inf
    spent = reprice(_made(run, env_id, condition), regime)
    return (spent.seconds if seconds else spent.usd)[updates]


def _made(run: JobOutcome, env_id: str, condition: str) -> Made:
    size = EQUAL_STEPS.get(condition)
    calibrated = STANDARD if size is None else minibatches_of(size)
    return Made(
        run=run,
        durations=durations(env_id, PAPER_PRESET if condition == PAPER else calibrated),
        measurements=_WITH_NOISE if condition in (MARGINAL, WIDER) else 1.0,
    )


def _table(done: Outcomes, env_id: str, on_cpu: Regime, usd: Spending) -> Table:
    seconds = _spent(done, env_id, on_cpu, seconds=True)
    rows: list[tuple[Value, ...]] = []
    for name in conditions(done, env_id):
        made = runs(done, name, env_id)
        reached = sum(updates_needed(run, env_id) is not None for run in made)
        taken = [[_steps_to(run, env_id) for run in made], seconds[name]]
        taken += [of[name] for of in usd.values()]
        taken.append([_on_own(run, env_id, name, on_cpu) for run in made])
        taken.append([_on_server(run, env_id, name, on_cpu) for run in made])
        medians = (str(censored_median(values)) for values in taken)
        rows.append((name, f"{reached} of {len(made)}", *medians))
    return Table(
        title=f"{env_id}, to a return of {TARGETS[env_id]:g}",
        columns=(
            "condition",
            "reached",
            "steps",
            f"seconds, {on_cpu.name}",
            *(f"USD, {name}" for name in usd),
            "USD, the CPU learner's own cores",
            "USD, one server",
        ),
        rows=tuple(rows),
    )


def _started_table(
    done: Outcomes, env_id: str, on_cpu: Regime, usd: Sequence[Mapping[str, list[float]]]
) -> Table:
    """Share of a CPU learner's dollars, and of its rounds', that remains without paid starts."""
    basis = replace(on_cpu.basis, cold_start_s=0.0)
    warm = _spent(done, env_id, replace(on_cpu, start_s=0.0, basis=basis))
    rows: list[tuple[Value, ...]] = []
    for name in conditions(done, env_id):
        made = runs(done, name, env_id)
        own = [_on_own(run, env_id, name, replace(on_cpu, start_s=0.0)) for run in made]
        booted = [_on_server(run, env_id, name, on_cpu, boot_s=0.0) for run in made]
        spent = (*(of[name] for of in (*usd, warm)), own, booted)
        rows.append((name, *(str(censored_median(values)) for values in spent)))
    return Table(
        title=f"{env_id}: USD with a CPU learner, and what starting takes of it",
        columns=(
            "condition",
            "all",
            "the learner is up",
            "and environments are warm",
            "own cores of a learner that is up",
            "one server that is up",
        ),
        rows=tuple(rows),
    )


def _steps_to(run: JobOutcome, env_id: str) -> float:
    updates = updates_needed(run, env_id)
    return math.inf if updates is None else sum(r.env_steps for r in run.rounds[:updates])


def _on_own(run: JobOutcome, env_id: str, condition: str, regime: Regime) -> float:
    updates = updates_needed(run, env_id)
    if updates is None:
        return math.inf
    made = _made(run, env_id, condition)
    return on_own_cores(made, regime, updates=updates, start_s=regime.start_s)


def _on_server(
    run: JobOutcome, env_id: str, condition: str, regime: Regime, *, boot_s: float = BOOT_S
) -> float:
    updates = updates_needed(run, env_id)
    if updates is None:
        return math.inf
    made = _made(run, env_id, condition)
    return on_best_server(made, regime, updates=updates, boot_s=boot_s)


def _panel(env_id: str, usd: Spending) -> Panel:
    """Dollars of the conditions that came there, with intervals."""
    medians = {
        regime: {name: censored_median(values) for name, values in of.items()}
        for regime, of in usd.items()
    }
    names = [
        name for name, each in next(iter(medians.values())).items() if math.isfinite(each.value)
    ]
    return Panel(
        title=f"{env_id}, to {TARGETS[env_id]:g}",
        x_label="",
        y_label="USD (median, 95 % interval)",
        kind="point",
        categories=tuple(names),
        series=tuple(
            _series(regime, [of[name] for name in names]) for regime, of in medians.items()
        ),
    )


def _series(label: str, each: Sequence[Estimate]) -> Series:
    """Medians above their places; an interval that has no end ends at twice the dearest."""
    above = 2.0 * max((one.value for one in each), default=0.0)
    return Series(
        label=label,
        x=tuple(map(float, range(len(each)))),
        y=tuple(one.value for one in each),
        low=tuple(one.low for one in each),
        high=tuple(one.high if math.isfinite(one.high) else above for one in each),
    )


def _ours(usd: Spending) -> dict[str, dict[str, list[float]]]:
    """Every regime but the paper's, without the paper's own configuration."""
    return {
        regime: {name: values for name, values in of.items() if name != PAPER}
        for regime, of in list(usd.items())[1:]
    }


def _regret_table(env_id: str, usd: Spending, numbers: tuple[str, ...]) -> Table:
    found = regrets(_ours(usd), numbers)
    return Table(
        title=f"{env_id}: dollars of the rounds over those of the best fixed number",
        columns=("condition", *_ours(usd), "worst"),
        rows=tuple((name, *map(str, of.values())) for name, of in found.items()),
    )


def _claims(env_id: str, usd: Spending, numbers: tuple[str, ...]) -> list[Claim]:
    """Whether the two policies are worth having: by the worst of their regrets.

    Numbers with too few runs are left out where others have enough: one lucky run would be the best
    of all, one unlucky run none.
    """
    ours = _ours(usd)
    enough = {name for name, values in ours[_CPU].items() if len(values) >= _FEWEST_RUNS}
    made = [name for name in numbers if name in ours[_CPU]]
    beside = [name for name in made if name in enough] or made
    found = {name: of["worst"] for name, of in regrets(ours, beside).items()}
    rival = min(beside, key=lambda name: found[name].value)
    claims = []
    for name, paper in ((NITRO, _PROMISE), (MARGINAL, _MARGINAL)):
        if name in found:
            among = ", ".join(beside)
            text = f"{env_id}, worst regret: {name} {found[name]}, {rival} {found[rival]}"
            decided = {name, rival} <= enough
            verdict = found[name].less_than(found[rival]) if decided else _TOO_FEW
            claims.append(Claim(paper=paper, ours=f"{text} (best of {among})", verdict=verdict))
    return claims


EXPERIMENT = Experiment(
    name="dollars",
    title="Dollars to a return",
    paper="section 8: up to 42 % lower cost; Figures 10 and 11 are reward over time",
    plan=plan,
    find=find,
    most_steps=MOST_STEPS,
)
