"""Outcomes of jobs that were never run."""

from collections.abc import Sequence

from benchmarks.environment import Environment
from experiments.outcome import Evaluation, JobOutcome, RoundOutcome
from shared.contracts.billing import ServerfulCost
from shared.contracts.rounds import RoundTiming

MACHINE = Environment(
    measured_at="2026-01-01T00:00:00Z",
    cpu="one",
    num_cpus=2,
    memory_gb=1.0,
    system="Linux",
    python="3.11",
    libraries={},
    load_average=0.0,
    commit="abc",
)


def outcome(
    returns: Sequence[float],
    *,
    actors: Sequence[int] = (),
    ratios: Sequence[float | None] = (),
    usd_per_round: float = 1.0,
) -> JobOutcome:
    """A run with one evaluation before every round and one at the end."""
    count = len(returns) - 1
    actors = actors or [8] * count
    ratios = ratios or [None] * count
    timing = RoundTiming(
        plan_s=0.1,
        collect_s=1.0,
        update_s=0.5,
        curvature_s=0.01,
        evaluate_s=0.0,
        checkpoint_s=0.0,
        total_s=1.61,
    )
    return JobOutcome(
        rounds=tuple(
            RoundOutcome(
                num_actors=actors[k],
                env_steps=actors[k] * 256,
                score=0.5,
                ratio=ratios[k],
                cost_usd=usd_per_round,
                launch_s=0.01,
                timing=timing,
            )
            for k in range(count)
        ),
        evaluations=tuple(
            Evaluation(
                updates=k,
                env_steps=256 * sum(actors[:k]),
                cost_usd=k * usd_per_round,
                mean_return=value,
            )
            for k, value in enumerate(returns)
        ),
        stop_reason="max_rounds",
        total_usd=count * usd_per_round,
        by_item={"learner": count * usd_per_round / 2},
        lambda_gb_s=10.0,
        lambda_requests=100.0,
        projected_wall_s=60.0,
        serverful=(
            ServerfulCost(
                learner_instance="a", actor_instance="b", wall_s=60.0, total_usd=2.0 * count
            ),
        ),
        assumptions=(),
        wall_s=30.0,
        environment=MACHINE,
    )
