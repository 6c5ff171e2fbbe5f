"""Nitro without boosting, and without serverless actors (Figure 17).

Without serverless is the very runs of Nitro, billed on servers: the rounds are the same, and so are
the returns. The learner is the same machine on both sides. The paper's actor machine there has 72
cores; ours is the cost model's, with 16.
"""

from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, Body, Grid, Scale, fixed, job_body
from experiments.outcome import JobOutcome
from experiments.reporting.comparison import (
    WARM_NOTE,
    compared,
    final_return,
    fixed_alone,
    higher_return,
    runs,
)
from experiments.reporting.findings import Claim, Findings, Table
from experiments.reporting.statistics import Interval, interval, verdict

_NITRO, _PLAIN, _SERVERS = "nitro", "without boosting", "without serverless"


def plan(scale: Scale, _done: Done) -> Grid:
    """Nitro, and 16 actors throughout."""
    grid = Grid()
    variants: dict[str, Body] = {_NITRO: {"policy": "nitro"}, _PLAIN: fixed(scale.of(16, 4))}
    for seed in range(scale.seeds):
        for name, scaling in variants.items():
            grid.add_job(name, HOPPER, seed, {**job_body(scale, HOPPER), "scaling": scaling})
    return grid


def find(scale: Scale, made: Done) -> Findings:
    """Returns and bills of the three."""
    done = fixed_alone(made, (_PLAIN,), scale=scale)
    panels, tables = compared(done)
    nitro, plain = (runs(done, name, HOPPER) for name in (_NITRO, _PLAIN))
    serverless = interval([r.total_usd for r in nitro])
    servers = interval([r.servers_usd for r in nitro])
    returned = str(final_return(done, _NITRO, HOPPER))
    table = Table(
        title="Ablation",
        columns=("variant", "final return", "cost (USD)"),
        rows=(
            (_NITRO, returned, str(serverless)),
            (_PLAIN, str(final_return(done, _PLAIN, HOPPER)), str(_bill(plain))),
            (_SERVERS, returned, str(servers)),
        ),
    )
    paper = "Without boosting: cheapest, but a lower reward"
    claims = (
        *higher_return(done, _NITRO, _PLAIN, paper=paper),
        Claim(
            paper="Without serverless: the same reward at excessive cost",
            ours=f"{HOPPER}: Nitro ${serverless}, on servers ${servers}",
            verdict=verdict(servers, serverless),
        ),
    )
    return Findings(panels=panels, tables=(*tables, table), claims=claims, notes=(WARM_NOTE,))


def _bill(found: list[JobOutcome]) -> Interval:
    return interval([r.total_usd for r in found])


EXPERIMENT = Experiment(
    name="ablation",
    title="Nitro without boosting and without serverless",
    paper="Figure 17",
    plan=plan,
    find=find,
)
