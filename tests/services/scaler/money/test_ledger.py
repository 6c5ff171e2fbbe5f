from dataclasses import replace
from decimal import Decimal

import pytest

from services.scaler.book.attempts import LaunchOutcome, OpenAttempt
from services.scaler.money.ledger import NOTHING_LAUNCHED, assumptions, settle, worst_outcome
from shared.contracts.rounds import LaunchCounts
from shared.money.costs import worst_case_round_usd
from tests.services.scaler.money.test_budget import basis

COUNTS = LaunchCounts(requested=3, succeeded=3, failed=0, reissued=0, throttled=0)
OUTCOME = LaunchOutcome(
    counts=COUNTS,
    requests=3,
    durations_s=(0.5, 2.0, 1.0),
    slowest_sample_s=2.0,
    slowest_evaluation_s=0.0,
)


def attempt(**changes: object) -> OpenAttempt:
    fields = {
        "round": 4,
        "attempt": 1,
        "lease_id": "lease",
        "num_invocations": 3,
        "reserved_usd": 1.0,
        "warm": 0,
        "outcome": OUTCOME,
        "learner_s": 3.0,
        "held_s": 7.0,
        **changes,
    }
    return OpenAttempt.model_validate(fields)


@pytest.mark.parametrize("unknown", ["outcome", "learner_s", "held_s"])
def test_nothing_is_final_while_something_is_unknown(unknown: str) -> None:
    assert settle(attempt(**{unknown: None}), basis(), "wall") is None


@pytest.mark.parametrize(("clock", "held_s"), [("wall", 7), ("projected", 5)])
def test_a_bill_against_decimal_arithmetic(clock: str, held_s: int) -> None:
    settlement = settle(attempt(), basis(provisioned=10), clock)  # type: ignore[arg-type]
    assert settlement is not None
    expected = {
        "learner": held_s * Decimal("0.9776") / 3600,
        "cache": held_s * Decimal("0.052") / 3600,
        "scaler": held_s * Decimal("0.0123425") / 3600,
        "provisioned_concurrency": held_s * 10 * Decimal("0.0000041667"),
        "lambda_duration": Decimal("3.5") * Decimal("0.0000166667"),
        "lambda_requests": 3 * Decimal("0.0000002"),
    }
    got = {line.item: line.amount_usd for line in settlement.lines}
    assert got == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-9)
    assert settlement.amount_usd == pytest.approx(float(sum(expected.values())), rel=1e-9)
    assert settlement.projected_s == 5
    assert all((line.round, line.attempt) == (4, 1) for line in settlement.lines)
    assert all(line.amount_usd == line.quantity * line.unit_price_usd for line in settlement.lines)


def test_executions_on_warm_environments_have_their_own_price() -> None:
    settlement = settle(attempt(warm=2), basis(), "wall")
    assert settlement is not None
    lines = [line for line in settlement.lines if line.item == "lambda_duration"]
    assert [(line.quantity, line.unit_price_usd) for line in lines] == [
        (1.5, 0.0000097222),
        (2.0, 0.0000166667),
    ]


@pytest.mark.parametrize(
    ("deadline_s", "projected_s"),
    # Overhead, sending requests, a cold start, the slowest actor; then the learner.
    [(None, 0.5 + 1.5 + 4.0 + 2.0 + 3.0), (6.0, 6.0 + 3.0)],
)
def test_a_projection_has_every_part_of_a_round_and_a_bill_of_what_passed_has_its_cold_starts(
    deadline_s: float | None, projected_s: float
) -> None:
    slow = OUTCOME.model_copy(update={"counts": COUNTS.model_copy(update={"launch_s": 1.5})})
    launched = attempt(outcome=slow, cold=2, overhead_s=0.5, deadline_s=deadline_s)
    cold_basis = replace(basis(), cold_start_s=4.0)
    gb_s = {}
    for clock in ("projected", "wall"):
        settlement = settle(launched, cold_basis, clock)
        assert settlement is not None
        gb_s[clock] = sum(x.quantity for x in settlement.lines if x.item == "lambda_duration")
        if clock == "projected":
            assert settlement.projected_s == pytest.approx(projected_s)
    assert gb_s == {"projected": 3.5 + 2 * 4.0, "wall": 3.5}


def test_an_evaluation_that_is_slower_than_the_round_is_waited_for() -> None:
    slow = OUTCOME.model_copy(update={"slowest_evaluation_s": 20.0})
    settlement = settle(attempt(outcome=slow), basis(), "projected")
    assert settlement is not None
    assert settlement.projected_s == 20.0


def test_nothing_launched_is_nothing_even_at_its_worst() -> None:
    assert (
        worst_outcome(0, timeout_s=60.0).model_copy(update={"counts": NOTHING_LAUNCHED.counts})
        == NOTHING_LAUNCHED
    )


def test_lines_of_nothing_are_left_out() -> None:
    nothing = attempt(num_invocations=0, outcome=NOTHING_LAUNCHED, learner_s=0.0, held_s=0.0)
    settlement = settle(nothing, basis(), "wall")
    assert settlement is not None
    assert settlement.lines == ()


@pytest.mark.parametrize("clock", ["wall", "projected"])
def test_what_is_unknown_is_billed_at_the_worst_case_it_was_reserved_with(clock: str) -> None:
    lost = attempt(
        num_invocations=20, outcome=worst_outcome(20, timeout_s=60.0), learner_s=60.0, held_s=180.0
    )
    settlement = settle(lost, basis(), clock)  # type: ignore[arg-type]
    assert settlement is not None
    worst = worst_case_round_usd(20, waiting_s=120.0, learner_s=60.0, basis=basis())
    assert settlement.amount_usd == pytest.approx(worst, rel=1e-12)


def test_assumptions_name_prices_machine_and_clock() -> None:
    text = " ".join(assumptions(basis(), "projected", "g6.2xlarge"))
    for word in ("2026-11", "g6.2xlarge", "1024 MB", "would take on AWS"):
        assert word in text
    assert "wall time" in " ".join(assumptions(basis(), "wall", "g6.2xlarge"))


def test_a_round_among_several_open_ones_is_billed_its_share_of_the_projected_time() -> None:
    alone, shared = (
        settle(attempt(open_rounds=number, learner_s=1.0), basis(), "projected")
        for number in (1, 2)
    )
    assert alone is not None
    assert shared is not None
    assert (alone.projected_s, shared.projected_s) == (3.0, 1.5)
    measured = settle(attempt(open_rounds=2), basis(), "wall")
    assert measured is not None
    assert next(line.quantity for line in measured.lines if line.item == "learner") == 7.0
