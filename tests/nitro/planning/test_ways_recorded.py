"""A plan says of recorded runs what their ledgers then said, given what was measured in them.

Mean times of a run's own rounds go in. So this covers what a plan makes of times: rounds in kinds,
cold starts, evaluations, prices, and a fixed number of actors on the cores of one machine. It does
not cover whether a plan's short measurement finds the same times, nor whether a run on one machine
foretells another number of actors, a server or AWS. Ledger and plan share the model that bills.
"""

import json
from statistics import fmean

import pytest

from experiments.grid import CellId
from experiments.outcome import JobOutcome
from experiments.store import packed_cells
from nitro.planning.ways import Learner, on_one_machine_s, serverless_rounds
from nitro.planning.workload import LAUNCH_S, Workload
from shared.contracts.job_spec import JobSpec
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11
from tests.documents import ROOT

RESULTS = ROOT / "experiments" / "results"
RECORDED = (
    ("policies_standard", CellId("fixed 16", "Hopper-v4", 0)),
    ("policies_standard", CellId("fixed 16", "Walker2d-v4", 0)),
    ("actors", CellId("standard 64", "Hopper-v4", 0)),
    ("actors", CellId("paper 8", "Walker2d-v4", 1)),
    ("actors", CellId("paper 64", "Hopper-v4", 0)),
    ("scalability", CellId("250 actors", "Walker2d-v4", 0)),
)
CORES = 2
"""Of the machine they were made on."""
EPISODE_STEPS = 300
"""Of their evaluations, about: an episode ends with a fall."""
WITHIN = 0.25
CALL_S = 0.003
"""What an actor did beside its steps, as measured in jobs whose fragments are long."""
BYTES_PER_SAMPLE = 128.0
"""About; where every fragment leaves an episode, more than of plain steps."""


def read(experiment: str, cell: CellId) -> tuple[JobSpec, JobOutcome]:
    found = json.loads(packed_cells(RESULTS / experiment)[cell])
    return JobSpec.read(json.dumps(found["task"])), JobOutcome.model_validate(found["outcome"])


def workload_of(spec: JobSpec, run: JobOutcome) -> Workload:
    """Return a run as a job that could be trained elsewhere, with its own mean times.

    Actors are taken to have kept every core of the machine busy while the learner waited for them,
    which holds where one job runs at a time.
    """
    every, cores = spec.evaluation.every_rounds, run.environment.num_cpus
    # An evaluation shares the cores with the actors of its round.
    plain = [r for k, r in enumerate(run.rounds) if k and not (every and k % every == 0)]
    fragment_s = fmean(
        (r.timing.collect_s - LAUNCH_S * r.num_actors) * cores / r.num_actors for r in plain
    )
    steps = spec.steps_of(plain[0].num_actors)
    # An episode that is taken up repeats its last step.
    repeated = int(spec.resolved().episodes.go_on)
    step_s = max(1e-9, fragment_s - CALL_S) / (steps + repeated)
    learner_s = fmean(r.timing.learner_s for r in run.rounds)
    return Workload(
        env_id=spec.env_id,
        images=False,
        total_steps=run.env_steps,
        samples_per_round=plain[0].env_steps,
        evaluate_every=every,
        evaluation_episodes=spec.evaluation.episodes,
        episode_steps=EPISODE_STEPS,
        step_s=step_s,
        reset_s=0.0,
        call_s=CALL_S + repeated * step_s,
        update_s=learner_s,
        gpu_update_s=learner_s,
        bytes_per_sample=BYTES_PER_SAMPLE,
    )


def billed_by(spec: JobSpec, run: JobOutcome) -> Learner:
    """Return what recorded runs were billed by."""
    prices = AWS_US_EAST_1_2026_11
    # Early runs kept as many environments warm as their range has at most.
    kept = spec.actors.max if run.mean_warm is None else round(run.mean_warm)
    basis = CostBasis(
        prices=prices,
        learner_usd_per_s=prices.learner_usd_per_s("g6.2xlarge"),
        cpu_learner_usd_per_s=0.0,
        cache_usd_per_s=prices.cache_usd_per_s("cache.t4g.medium", "redis"),
        scaler_usd_per_s=prices.fargate_usd_per_s(vcpu=0.25, memory_gb=0.5),
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=min(64, kept),
        cold_start_s=2.0,
    )
    return Learner(kind="gpu", basis=basis, start_s=0.0)


@pytest.mark.parametrize(("experiment", "cell"), RECORDED)
def test_a_recorded_run_is_projected_as_its_ledger_says(experiment: str, cell: CellId) -> None:
    spec, run = read(experiment, cell)
    workload = workload_of(spec, run)
    learner = billed_by(spec, run)
    (num_actors,) = {r.num_actors for r in run.rounds}
    projected = serverless_rounds(workload, learner, num_actors)
    assert projected.usd == pytest.approx(run.total_usd, rel=WITHIN)
    assert projected.wall_s == pytest.approx(run.projected_wall_s, rel=WITHIN)


@pytest.mark.parametrize(("experiment", "cell"), RECORDED)
def test_a_recorded_run_took_as_long_here_as_a_plan_says(experiment: str, cell: CellId) -> None:
    spec, run = read(experiment, cell)
    workload = workload_of(spec, run)
    learner = billed_by(spec, run)
    num_actors = run.rounds[0].num_actors
    here_s = on_one_machine_s(workload, learner.basis, cores=CORES, num_actors=num_actors)
    assert here_s == pytest.approx(run.wall_s, rel=WITHIN)
