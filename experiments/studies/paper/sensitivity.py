"""Sensitivity to decay, window and the actors' memory (Figure 16).

Decay and window are trained. Memory is computed: the measured durations of the runs at the paper's
settings, stretched by the CPU share of each size and billed at its GB-seconds.
"""

from collections.abc import Sequence
from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, Body, Grid, Scale, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import interval, verdict
from nitro.local.plan import MEMORY_MB
from shared.contracts.learner_task import MB_PER_GB
from shared.money.costs import cpu_share
from shared.money.prices import AWS_US_EAST_1_2026_11

_DECAY, _WINDOW = 0.96, 6
_DECAYS = (0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
_WINDOWS = (3, 4, 5, 6, 7, 8, 9, 10)
_MEMORIES_MB = (256, 512, 1024, 1769, 2048, 3072)


def _decay_name(decay: float) -> str:
    return "paper" if decay == _DECAY else f"decay {decay:g}"


def _window_name(window: int) -> str:
    return "paper" if window == _WINDOW else f"window {window}"


def plan(scale: Scale, _done: Done) -> Grid:
    """One change at a time."""
    grid = Grid()
    changes: dict[str, Body] = {"paper": {}}
    changes |= {_decay_name(d): {"decay": d} for d in scale.of(_DECAYS, _DECAYS[3:5])}
    changes |= {_window_name(n): {"window": n} for n in scale.of(_WINDOWS, _WINDOWS[2:4])}
    changes["paper"] = {}
    for seed in range(scale.seeds):
        for name, change in changes.items():
            body = {**job_body(scale, HOPPER), "scaling": {"policy": "nitro", **change}}
            grid.add_job(name, HOPPER, seed, body)
    return grid


def find(scale: Scale, done: Done) -> Findings:
    """Return and cost over decay, window and memory."""
    decays, windows = scale.of(_DECAYS, _DECAYS[3:5]), scale.of(_WINDOWS, _WINDOWS[2:4])
    by_decay = [runs(done, _decay_name(d), HOPPER) for d in decays]
    by_window = [runs(done, _window_name(n), HOPPER) for n in windows]
    low, high = (interval([r.total_usd for r in by_decay[i]]) for i in (0, -1))
    near, far = (interval([r.total_usd for r in by_window[i]]) for i in (0, -1))
    claims = (
        Claim(
            paper="Cost grows with the decay factor",
            ours=f"{HOPPER}: ${low} at {decays[0]:g}, ${high} at {decays[-1]:g}",
            verdict=verdict(high, low),
        ),
        Claim(
            paper="Cost falls with the size of the window",
            ours=f"{HOPPER}: ${near} at {windows[0]}, ${far} at {windows[-1]}",
            verdict=verdict(near, far),
        ),
    )
    return Findings(
        panels=(
            *_panels("decay", decays, by_decay),
            *_panels("window", windows, by_window),
            *_memory_panels(runs(done, "paper", HOPPER)),
        ),
        tables=(_table("decay", decays, by_decay), _table("window", windows, by_window)),
        claims=claims,
        notes=(
            "Memory is computed from durations measured on full cores; the Lambda price is that of "
            "on-demand invocations.",
        ),
    )


def _panels(
    label: str, values: Sequence[float], found: Sequence[list[JobOutcome]]
) -> tuple[Panel, Panel]:
    returns = [interval([r.final_return for r in group]) for group in found]
    costs = [interval([r.total_usd for r in group]) for group in found]
    return (
        Panel(
            title=f"Return over {label}",
            x_label=label,
            y_label="final return",
            series=(Series.of("return", values, returns),),
        ),
        Panel(
            title=f"Cost over {label}",
            x_label=label,
            y_label="cost (USD)",
            series=(Series.of("cost", values, costs),),
        ),
    )


def _table(label: str, values: Sequence[float], found: Sequence[list[JobOutcome]]) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            value,
            len(group),
            str(interval([r.final_return for r in group])),
            str(interval([r.total_usd for r in group])),
            round(fmean(r.mean_actors for r in group), 1),
        )
        for value, group in zip(values, found, strict=True)
    ]
    columns = (label, "runs", "final return", "cost (USD)", "actors per round")
    return Table(title=f"Over {label}", columns=columns, rows=tuple(rows))


def _memory_panels(found: Sequence[JobOutcome]) -> tuple[Panel, Panel]:
    full_core_s = fmean(
        r.lambda_gb_s / r.lambda_requests * MB_PER_GB / MEMORY_MB * cpu_share(MEMORY_MB)
        for r in found
    )
    durations = [full_core_s / cpu_share(mb) for mb in _MEMORIES_MB]
    prices = [
        fmean(r.lambda_requests for r in found)
        * duration_s
        * mb
        / MB_PER_GB
        * AWS_US_EAST_1_2026_11.lambda_usd_per_gb_s
        for mb, duration_s in zip(_MEMORIES_MB, durations, strict=True)
    ]
    x = tuple(float(mb) for mb in _MEMORIES_MB)
    return (
        Panel(
            title="Duration over memory (computed)",
            x_label="memory (MB)",
            y_label="one invocation (s)",
            series=(Series(label="duration", x=x, y=tuple(durations)),),
        ),
        Panel(
            title="Function cost over memory (computed)",
            x_label="memory (MB)",
            y_label="all invocations (USD)",
            series=(Series(label="cost", x=x, y=tuple(prices)),),
        ),
    )


EXPERIMENT = Experiment(
    name="sensitivity",
    title="Sensitivity to decay, window and memory",
    paper="Figure 16",
    plan=plan,
    find=find,
    seeds=5,
)
