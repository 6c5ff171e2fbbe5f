"""Where a round's time goes, and what the detector adds (Figure 20).

The detector as it is by default, on all samples of the round, and on all samples with 100 Lanczos
steps as PyHessian takes them: the two savings the paper names, one after the other.
"""

from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import ATARI, HOPPER, MUJOCO, OWN_DETECTOR, Body, Grid, Scale, fixed, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import environments, runs
from experiments.reporting.findings import Claim, Findings, Panel, Series, Table, Value
from experiments.reporting.statistics import FEWEST_RUNS, interval, verdict

_DEFAULT, _ALL, _STEPS = "default", "all samples", "all samples, 100 steps"
_EVERY_SAMPLE: Body = {"num_samples": 1_000_000, "sampling": "even"}
_DETECTORS: dict[str, Body] = {
    _DEFAULT: OWN_DETECTOR,
    _ALL: _EVERY_SAMPLE,
    _STEPS: {**_EVERY_SAMPLE, "max_matvecs": 100, "tolerance": 1e-9},
}
_STAGES = ("plan_s", "collect_s", "update_s", "curvature_s", "checkpoint_s")
_OVERHEAD_PERCENT = 5.0
"""The paper: all overheads lie below this share."""


def plan(scale: Scale, _done: Done) -> Grid:
    """A few rounds of 16 actors per environment and detector."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id in scale.of((*MUJOCO, *ATARI), (HOPPER,)):
            for name, detector in _DETECTORS.items():
                body = job_body(scale, env_id, rounds=5)
                body |= {"evaluation": {"every_rounds": 0}, "scaling": fixed(scale.of(16, 4))}
                body["detector"] = detector
                grid.add_job(name, env_id, seed, body)
    return grid


def stage_s(outcome: JobOutcome, stage: str) -> float:
    """Return a stage's mean time per round, without the first one, which warms up."""
    return fmean(getattr(r.timing, stage) for r in outcome.rounds[1:])


def find(_scale: Scale, done: Done) -> Findings:
    """Stages per environment, and the detectors' times."""
    envs = environments(done)
    default = {e: runs(done, _DEFAULT, e) for e in envs}
    stages = tuple(
        Series(
            label=stage.removesuffix("_s"),
            x=tuple(range(len(envs))),
            y=tuple(fmean(stage_s(r, stage) for r in default[e]) for e in envs),
        )
        for stage in _STAGES
    )
    detectors = tuple(
        Series(
            label=name,
            x=tuple(range(len(envs))),
            y=tuple(_curvature_s(done, name, e) for e in envs),
        )
        for name in _DETECTORS
    )
    rows: list[tuple[Value, ...]] = [
        (e, *(round(1000 * s.y[i], 2) for s in (*stages, *detectors[1:])))
        for i, e in enumerate(envs)
    ]
    columns = ("environment", *(f"{s.label} (ms)" for s in stages), *_DETECTORS.keys())
    return Findings(
        panels=(
            _bars("Latency of a round of 16 actors", stages, envs),
            _bars("Time of the detector", detectors, envs),
        ),
        tables=(
            Table(
                title="Milliseconds per round; the last two: the other detectors",
                columns=(*columns[:6], f"{_ALL} (ms)", f"{_STEPS} (ms)"),
                rows=tuple(rows),
            ),
        ),
        claims=tuple(c for e in envs for c in _claims(done, e)),
    )


def _curvature_s(done: Done, name: str, env_id: str) -> float:
    return fmean(stage_s(r, "curvature_s") for r in runs(done, name, env_id))


def _claims(done: Done, env_id: str) -> tuple[Claim, Claim]:
    shares = [
        100 * stage_s(r, "curvature_s") / stage_s(r, "total_s")
        for r in runs(done, _DEFAULT, env_id)
    ]
    fast, slow = (
        interval([stage_s(r, "curvature_s") for r in runs(done, name, env_id)])
        for name in (_DEFAULT, _STEPS)
    )
    share = fmean(shares)
    return (
        Claim(
            paper="The detector takes less than 5 % of a round",
            ours=f"{env_id}: {share:.1f} %",
            verdict="holds" if share < _OVERHEAD_PERCENT else "does not hold",
        ),
        Claim(
            paper="Approximation and sub-sampling are both needed to keep it cheap",
            ours=f"{env_id}: {slow.value / fast.value:.0f} times slower with all samples and 100 "
            "steps (interquartile means)",
            verdict=verdict(slow, fast),
        ),
    )


def _bars(title: str, series: tuple[Series, ...], envs: list[str]) -> Panel:
    return Panel(
        title=title,
        x_label="",
        y_label="seconds",
        kind="bar",
        series=series,
        categories=tuple(envs),
    )


EXPERIMENT = Experiment(
    name="breakdown",
    title="Latency of a round and overhead of the detector",
    paper="Figure 20",
    plan=plan,
    find=find,
    seeds=FEWEST_RUNS,
    alone=True,
)
