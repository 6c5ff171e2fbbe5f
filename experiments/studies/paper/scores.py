"""Boosting scores over environments, algorithms and runs (Figure 4).

Ten rounds of one actor, as in the paper; the policy `nitro` measures the score and the range of one
to one actors keeps it from acting on it.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from scipy.stats import spearmanr

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, MUJOCO, CellId, Grid, Scale, job_body
from experiments.outcome import JobOutcome, RoundOutcome
from experiments.reporting.findings import Claim, Findings, Panel, Series

_ALGORITHMS = ("ppo", "impact", "impala")
_ROUNDS = 10
_ALIKE = 0.5
"""Rank correlation from which runs count as boosting the same rounds."""


def plan(scale: Scale, _done: Done) -> Grid:
    """PPO everywhere, the other algorithms on Hopper."""
    grid = Grid()
    cells = [("ppo", env_id) for env_id in scale.of(MUJOCO, MUJOCO[::2])]
    cells += [(algorithm, HOPPER) for algorithm in _ALGORITHMS[1:]]
    for seed in range(scale.seeds):
        for algorithm, env_id in cells:
            body = job_body(scale, env_id, rounds=_ROUNDS, algorithm=algorithm)
            body |= {"actors": {"min": 1, "max": 1}, "evaluation": {"every_rounds": 0}}
            grid.add_job(algorithm, env_id, seed, {**body, "scaling": {"policy": "nitro"}})
    return grid


def find(_scale: Scale, done: Done) -> Findings:
    """The scores of each round, and how alike two lines are."""
    seed = min(key.seed for key in done)
    by_env = [k for k in done if k.condition == "ppo" and k.seed == seed]
    by_algorithm = [k for k in done if k.env_id == HOPPER and k.seed == seed]
    by_run = [k for k in done if k.condition == "ppo" and k.env_id == HOPPER]
    panels = (
        _panel("environments (PPO)", done, {k.env_id: k for k in by_env}),
        _panel("algorithms (Hopper)", done, {k.condition: k for k in by_algorithm}),
        _panel("runs (PPO, Hopper)", done, {f"seed {k.seed}": k for k in by_run}),
    )
    alike = mean_rank_correlation([_scores(done[key]) for key in by_run])
    claim = Claim(
        paper="Even for one task and algorithm, boosting opportunities differ from run to run",
        ours="mean rank correlation of two runs' scores, over the rounds in which any differ: "
        + ("unknown" if alike is None else f"{alike:.2f}"),
        verdict=_verdict(alike),
    )
    return Findings(panels=panels, claims=(claim,))


def mean_rank_correlation(runs: Sequence[Sequence[float]]) -> float | None:
    """Return Spearman's correlation, averaged over all pairs of runs with scores that vary.

    Rounds with one score in all runs are left out: the first ones, which no ratio is known of yet.

    Args:
        runs: Scores by round, as many of each run.

    Returns:
        None when there is no pair with two different scores each.
    """
    rounds = [scores for scores in zip(*runs, strict=True) if len(set(scores)) > 1]
    varying = [scores for scores in zip(*rounds, strict=True) if len(set(scores)) > 1]
    pairs = [float(spearmanr(one, other).statistic) for one, other in combinations(varying, 2)]
    return fmean(pairs) if pairs else None


def _scores(outcome: JobOutcome) -> list[float]:
    return [r.score or 0.0 for r in outcome.rounds]


def _verdict(alike: float | None) -> str:
    if alike is None:
        return "not decided: too few runs or rounds"
    return "holds" if alike < _ALIKE else "does not hold"


def _panel(title: str, done: Done, lines: dict[str, CellId]) -> Panel:
    return Panel(
        title=title,
        x_label="round",
        y_label="boosting score",
        series=tuple(_line(label, done[key].rounds) for label, key in lines.items()),
    )


def _line(label: str, rounds: Sequence[RoundOutcome]) -> Series:
    scored = [(k, r.score) for k, r in enumerate(rounds) if r.score is not None]
    return Series(label=label, x=tuple(k for k, _ in scored), y=tuple(s for _, s in scored))


EXPERIMENT = Experiment(
    name="scores",
    title="Boosting scores over environments, algorithms and runs",
    paper="Figure 4",
    plan=plan,
    find=find,
    seeds=3,
)
