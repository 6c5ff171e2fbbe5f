"""How often measuring curvature on fewer samples, or with fewer products, changes a decision.

A real Hopper run is trained in this process, and after every update the curvature of the same
policy is measured in many ways: on more or fewer samples, with more or fewer Lanczos products. Each
way is a detector of its own, whose ratios go through the scaling policy as they would in a job. The
reference measures all samples with a residual of 0.1 %. Samples are drawn in proportion to their
part of the Hessian, as by default, or spread evenly. Taken again from the same round they are other
samples: how much of a ratio is chance.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import Cell, Grid, Scale
from experiments.reporting.findings import Findings, Panel, Series, Table
from experiments.studies.detector.measured_run import SPEC, WAYS, Detector, Study, Subsampling, run
from shared.contracts.detector_rule import DetectorRule

NAME = "detector_subsampling"
_USUAL = DetectorRule().num_samples
FULL = Subsampling(
    rounds=20,
    actors=16,
    epochs=30,
    sizes=(64, 128, 256, 512, 1024, 2048, 4096),
    products=(3, 4, 6, 8, 12, 20),
    draws=4,
)
QUICK = Subsampling(rounds=3, actors=4, epochs=2, sizes=(64, 256, 1024), products=(3, 6), draws=2)


def plan(scale: Scale, _done: Done) -> Grid:
    """One run for each seed."""
    grid = Grid()
    for seed in range(scale.seeds):
        grid.add("detectors", SPEC.env_id, seed, scale.of(FULL, QUICK))
    return grid


def work(cell: Cell) -> Study:
    """Make one run."""
    assert isinstance(cell.task, Subsampling)
    return run(cell.task, seed=cell.id.seed)


def find(_scale: Scale, done: Done) -> Findings:
    """The change of a decision, over samples and over products."""
    studies: list[Study] = list(done.values())
    detectors = list(zip(*(study.detectors for study in studies), strict=True))
    rows = tuple(
        (
            each[0].num_samples,
            each[0].sampling,
            "to 1 %" if each[0].converged else each[0].max_matvecs,
            fmean(d.mean_products for d in each),
            100 * fmean(d.median_ratio_error for d in each),
            100 * fmean(d.changed_share for d in each),
            fmean(d.mean_change for d in each),
        )
        for each in detectors
        if each[0].converged or each[0].num_samples == _USUAL
    )
    columns = ("samples", "drawn", "products", "taken", "median error of R (%)")
    table = Table(
        title="Detectors beside all samples and a residual of 0.1 %",
        columns=(*columns, "rounds changed (%)", "mean change (actors)"),
        rows=rows,
    )
    spread = fmean(study.spread_of_rounds for study in studies)
    draws = ", ".join(
        f"{fmean(study.spread_of_draws[way] for study in studies):.2f} over draws ({way})"
        for way in WAYS
    )
    return Findings(
        panels=(
            _over_sizes(studies, lambda d: 100 * d.median_ratio_error, "median error of R (%)"),
            _over_sizes(studies, lambda d: d.mean_change, "mean change (actors)"),
            _counts(studies[0]),
        ),
        tables=(table,),
        notes=(f"Standard deviation of log R: {spread:.2f} over rounds, {draws}.",),
    )


def _over_sizes(studies: Sequence[Study], value: Callable[[Detector], float], label: str) -> Panel:
    lines: dict[str, dict[int, list[float]]] = {}
    for detector in (d for study in studies for d in study.detectors):
        products = "to 1 %" if detector.converged else f"{detector.max_matvecs} products"
        name = products if detector.sampling == "proportional" else f"{products}, even"
        sizes = lines.setdefault(name, {})
        sizes.setdefault(detector.num_samples, []).append(value(detector))
    sizes_of_all = sorted({size for line in lines.values() for size in line})
    return Panel(
        title=label,
        x_label="samples",
        y_label=label,
        categories=tuple(map(str, sizes_of_all)),
        series=tuple(
            Series(
                label=name,
                x=tuple(map(sizes_of_all.index, line)),
                y=tuple(map(fmean, line.values())),
            )
            for name, line in lines.items()
        ),
    )


def _counts(study: Study) -> Panel:
    counts = {"all samples, to 0.1 %": study.counts} | {
        f"{_USUAL} samples, to 1 %": each.counts
        for each in study.detectors
        if (each.converged, each.sampling, each.num_samples) == (True, WAYS[0], _USUAL)
    }
    return Panel(
        title="actors that are asked for",
        x_label="round",
        y_label="actors",
        series=tuple(
            Series(label=label, x=tuple(range(len(each))), y=each) for label, each in counts.items()
        ),
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Sub-sampling the detector",
    paper="section 6.2",
    plan=plan,
    find=find,
    seeds=1,
    task=Subsampling,
    outcome=Study,
    work=work,
)
