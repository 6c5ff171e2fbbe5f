"""The hard cap over random jobs, twice two hundred: all desks are real, time and actors are not."""

from decimal import Decimal

import pytest

from services.scaler.money.budget import closing_usd
from tests.services.scaler.scaling.seen import biased_agent
from tests.services.scaler.simulated_gradients import GradientScaler
from tests.services.scaler.simulated_job import SimulatedScaler
from tests.services.scaler.simulated_overlap import OverlappingScaler

SCALINGS: list[dict[str, object]] = [
    {"policy": "nitro"},
    {"policy": "nitro", "decay": 0.5},
    {"policy": "nitro", "convention": "artifact"},
    {"policy": "random"},
    {"policy": "kungfu"},
    {"policy": "hydrozoa", "every_rounds": 2},
    {"policy": "reward_window"},
    {"policy": "minionsrl", "agent": biased_agent(*(0.0,) * 12).model_dump()},
]
_STEP = 10
_HUNG = 60
_ON_FUNCTIONS = 100


def check_bill(scaler: SimulatedScaler, budget_usd: float) -> None:
    """Check that a job that is over was billed whole, and not beyond its budget."""
    done = scaler.book.job("job")
    assert done is not None
    assert not done.has_open_bills
    lines = scaler.book.lines("job")
    spent = sum(Decimal(line.quantity) * Decimal(line.unit_price_usd) for line in lines)
    assert float(spent) == pytest.approx(done.settled_usd, rel=1e-9)
    assert float(spent) <= budget_usd * (1 + 1e-9)
    if scaler.clock == "wall":
        held_s = sum(line.quantity for line in lines if line.item == "learner")
        assert held_s == pytest.approx(scaler.held_s, rel=1e-9)


@pytest.mark.parametrize("first", range(0, 200, _STEP))
@pytest.mark.parametrize("kind", [SimulatedScaler, OverlappingScaler])
def test_no_job_spends_more_than_its_budget_and_none_stops_early(
    kind: type[SimulatedScaler], first: int
) -> None:
    for seed in range(first, first + _STEP):
        scaler = kind(seed)
        spec = scaler.random_spec(SCALINGS[seed % len(SCALINGS)])
        stopped = scaler.run(spec)
        check_bill(scaler, spec.stop.budget_usd)
        assert stopped.plan.stop in ("budget", "max_rounds"), seed
        if stopped.plan.stop == "budget" and not stopped.plan.attempt:
            pricing = scaler.pricing(spec, stopped.longest_learner_s)
            smallest_usd = pricing.worst_case_usd(spec.actors.min) + closing_usd(spec, pricing)
            assert smallest_usd > spec.stop.budget_usd - stopped.committed_usd, seed


def test_no_job_whose_gradients_functions_compute_spends_more_than_its_budget() -> None:
    for seed in range(_ON_FUNCTIONS):
        scaler = GradientScaler(seed)
        spec = scaler.random_spec(SCALINGS[seed % len(SCALINGS)])
        scaler.run(spec)
        check_bill(scaler, spec.stop.budget_usd)


def test_a_learner_that_hangs_costs_no_more_than_the_budget() -> None:
    for seed in range(_HUNG):
        scaler = SimulatedScaler(seed)
        if scaler.clock == "projected":
            continue  # its time costs nothing
        spec = scaler.random_spec(SCALINGS[seed % len(SCALINGS)])
        scaler.hang(spec)
        assert scaler.record().job.stop_reason == "budget", seed
        check_bill(scaler, spec.stop.budget_usd)
