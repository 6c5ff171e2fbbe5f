"""PPO and IMPACT with and without Nitro on the six games (Figures 10, 11 and 14).

Without Nitro means 16 actors throughout, the paper's baseline; it ran on servers there, so its bill
on servers stands beside the serverless one: with the same learner, as in the paper, and on the
paper's own machines.
"""

from statistics import fmean

from experiments.experiment import Done, Experiment
from experiments.grid import ATARI, HOPPER, MUJOCO, Body, Grid, Scale, fixed, job_body
from experiments.reporting.comparison import compared, conditions, environments, higher_return, runs
from experiments.reporting.findings import Claim, Findings, Table, Value
from experiments.reporting.statistics import FEWEST_RUNS, interval, verdict

_ALGORITHMS = ("ppo", "impact")
_CLAIMS = {
    "ppo": "Nitro improves PPO's final reward by up to 5 times",
    "impact": "Nitro improves IMPACT's final reward by up to 3 times",
}
_SAVED = {
    "ppo": "Nitro cuts PPO's training cost by up to 29 %",
    "impact": "Nitro cuts IMPACT's training cost by up to 42 %",
}


def plan(scale: Scale, _done: Done) -> Grid:
    """Both algorithms with both policies."""
    grid = Grid()
    envs = scale.of((*MUJOCO, *ATARI), (HOPPER, ATARI[0]))
    for seed in range(scale.seeds):
        for env_id in envs:
            for algorithm in _ALGORITHMS:
                body = job_body(scale, env_id, algorithm=algorithm)
                variants: dict[str, Body] = {
                    f"{algorithm} with Nitro": {"policy": "nitro"},
                    algorithm: fixed(scale.of(16, 4)),
                }
                for name, scaling in variants.items():
                    grid.add_job(name, env_id, seed, {**body, "scaling": scaling})
    return grid


def find(_scale: Scale, done: Done) -> Findings:
    """Returns, and the bill with Nitro beside that of servers without."""
    panels, tables = compared(done, actors=False)
    claims: list[Claim] = []
    rows: list[tuple[Value, ...]] = []
    for algorithm in _ALGORITHMS:
        boosted = f"{algorithm} with Nitro"
        claims += higher_return(done, boosted, algorithm, paper=_CLAIMS[algorithm])
        for env_id in environments(done):
            if boosted in conditions(done, env_id):
                claims.append(_cost_claim(done, algorithm, env_id))
                rows += [_bill(done, name, env_id) for name in (boosted, algorithm)]
    columns = (
        "environment",
        "condition",
        "serverless (USD)",
        "on servers (USD)",
        "on the paper's servers (USD)",
        "learner's share",
    )
    bills = Table(title="Bills", columns=columns, rows=tuple(rows))
    return Findings(panels=panels, tables=(*tables, bills), claims=tuple(claims))


def _bill(done: Done, name: str, env_id: str) -> tuple[Value, ...]:
    found = runs(done, name, env_id)
    learner = fmean(r.by_item.get("learner", 0.0) / r.total_usd for r in found)
    return (
        env_id,
        name,
        str(interval([r.total_usd for r in found])),
        str(interval([r.servers_usd for r in found])),
        str(interval([r.serverful[0].total_usd for r in found])),
        f"{100 * learner:.0f} %",
    )


def _cost_claim(done: Done, algorithm: str, env_id: str) -> Claim:
    ours = interval([r.total_usd for r in runs(done, f"{algorithm} with Nitro", env_id)])
    servers = interval([r.servers_usd for r in runs(done, algorithm, env_id)])
    part = 100 * ours.value / servers.value
    text = f"{env_id}: ${ours} with Nitro, {part:.0f} % of ${servers} on servers without"
    return Claim(paper=_SAVED[algorithm], ours=text, verdict=verdict(servers, ours))


EXPERIMENT = Experiment(
    name="games",
    title="PPO and IMPACT with and without Nitro",
    paper="Figures 10, 11 and 14",
    plan=plan,
    find=find,
    seeds=FEWEST_RUNS,
)
