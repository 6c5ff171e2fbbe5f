"""The bill of the job that `nitro train` begins from, item by item: as it was, and as it is."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from experiments.durations import Durations
from experiments.reporting.findings import Table, Value
from nitro.planning.prices import cost_basis
from nitro.planning.ways import kept_by_reuse
from nitro.planning.workload import rounds
from nitro.spec.starting_job import starting_job
from shared.contracts.learner_kind import LearnerKind
from shared.deployment.config import NitroConfig
from shared.deployment.machines import LEARNER_START_S
from shared.money.costs import CostBasis
from shared.money.one_server import one_server_round_s
from shared.money.round_costs import execution_items, held_items, serverless_round_s

_EVALUATIONS, _EPISODES, _EPISODE_STEPS = 20, 10, 700
"""Of a job that learns: episodes end with a fall at first, and last 1,000 steps in the end."""
_START = "learner, start"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Billed:
    """The items of a job's bill."""

    name: str
    basis: CostBasis
    learner: LearnerKind
    own_cores: int = 0
    """Cores of the learner that do what functions would; 0 where functions do it."""


def bill_table(env_id: str, durations: Durations) -> Table:
    """Return the dollars of every item, and the minutes, of one job billed in several ways."""
    job = starting_job(env_id)
    found = [_bill(each, env_id, durations) for each in _ways(job.num_actors)]
    items = list(dict.fromkeys(item for bill, _ in found for item in bill))
    rows: list[tuple[Value, ...]] = [
        (item.replace("_", " "), *(f"{bill[item]:.4f}" for bill, _ in found)) for item in items
    ]
    rows.append(("all", *(f"{sum(bill.values()):.4f}" for bill, _ in found)))
    rows.append(("minutes", *(f"{seconds / 60:.1f}" for _, seconds in found)))
    return Table(
        title=f"{env_id}, {job.total_steps:,} steps as `nitro train` asks for them: USD by item",
        columns=("item", *(each.name for each in _ways(job.num_actors))),
        rows=tuple(rows),
    )


def _ways(num_actors: int) -> tuple[_Billed, ...]:
    """Return the bill as it was, then one change after the other up to today's defaults."""
    config = NitroConfig()
    today = cost_basis(config)
    cache_usd_per_s = today.prices.cache_usd_per_s("cache.t4g.medium", "redis")
    was = replace(today, cache_usd_per_s=cache_usd_per_s, provisioned=64)
    reused = kept_by_reuse(was, num_actors)
    return (
        _Billed(name="GPU learner, 64 provisioned, larger cache", basis=was, learner="gpu"),
        _Billed(name="reused environments", basis=reused, learner="gpu"),
        _Billed(name="and a CPU learner", basis=reused.with_learner("cpu"), learner="cpu"),
        _Billed(
            name="and the smallest cache",
            basis=kept_by_reuse(today, num_actors).with_learner("cpu"),
            learner="cpu",
        ),
        _Billed(
            name="and the learner's own cores: now",
            basis=replace(today.with_learner("cpu"), provisioned=0, function_timeout_s=math.inf),
            learner="cpu",
            own_cores=int(config.cpu_learner_vcpu),
        ),
    )


def _bill(
    billed: _Billed, env_id: str, durations: Durations
) -> tuple[defaultdict[str, float], float]:
    """Return dollars by item, and the seconds."""
    job = starting_job(env_id)
    num_rounds = -(-job.total_steps // job.samples_per_round)
    workload = durations.workload(
        env_id,
        total_steps=job.total_steps,
        samples_per_round=job.samples_per_round,
        evaluate_every=-(-num_rounds // _EVALUATIONS),
        evaluation_episodes=_EPISODES,
        episode_steps=_EPISODE_STEPS,
    )
    learner_s = workload.gpu_update_s if billed.learner == "gpu" else workload.update_s
    start_s, usd = LEARNER_START_S[billed.learner], defaultdict[str, float](float)
    seconds = start_s
    usd[_START] = start_s * billed.basis.learner_usd_per_s
    for kind in rounds(workload, job.num_actors, billed.basis, learner_s=learner_s):
        if billed.own_cores:
            round_s = one_server_round_s(kind.measured, billed.basis, billed.own_cores)
            items = held_items(round_s, billed.basis)
        else:
            round_s = serverless_round_s(kind.measured, billed.basis)
            executions = execution_items(kind.measured, billed.basis)
            items = (*held_items(round_s, billed.basis), *executions)
        seconds += kind.count * round_s
        for item in items:
            usd[item.item] += kind.count * item.amount_usd
    return usd, seconds
