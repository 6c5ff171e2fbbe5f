"""What a round costs and what an actor adds, against bills written out."""

import pytest

from services.scaler.book.attempts import OpenAttempt
from services.scaler.money.ledger import settle
from services.scaler.money.round_means import with_round
from services.scaler.scaling.base import RoundCosts
from tests.services.scaler.money.test_budget import basis
from tests.services.scaler.money.test_ledger import attempt


def after(costs: RoundCosts | None, learned: OpenAttempt) -> RoundCosts | None:
    bill = settle(learned, basis(), "wall")
    assert bill is not None
    return with_round(costs, learned, bill)


def learned(**changes: object) -> OpenAttempt:
    """Two actors and an episode; the update is 2 of the 8 seconds that are billed."""
    return attempt(attempt=0, num_evaluations=1, held_s=8.0, update_s=2.0, **changes)


def test_a_bill_is_what_is_fixed_and_so_much_an_actor() -> None:
    per_s = (0.9776 + 0.052 + 0.0123425) / 3600
    executions = 3.5 * 0.0000166667 + 3 * 0.0000002
    found = after(None, learned())
    assert found is not None
    assert (found.num_rounds, found.fixed_s, found.actor_s) == (1, 6.0, 1.0)
    assert found.actor_usd == pytest.approx(executions / 3 + per_s)
    assert found.fixed_usd == pytest.approx(6 * per_s + executions / 3)
    bill = settle(learned(), basis(), "wall")
    assert bill is not None
    assert found.fixed_usd + 2 * found.actor_usd == pytest.approx(bill.amount_usd)


def test_means_are_of_all_rounds_at_first_and_follow_later_ones() -> None:
    costs = None
    for held_s in (8.0, 10.0, 12.0):
        costs = after(costs, learned().model_copy(update={"held_s": held_s}))
    assert costs is not None
    assert costs.fixed_s == pytest.approx(8.0)
    for _ in range(60):
        costs = after(costs, learned().model_copy(update={"held_s": 3.0}))
    assert costs is not None
    assert costs.num_rounds == 63
    assert costs.fixed_s == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": 1},
        {"update_s": 0.0},
        {"open_rounds": 2},
        {"num_invocations": 1},
    ],
    ids=["launched again", "not learned from", "overlapping", "episodes alone"],
)
def test_rounds_that_are_not_whole_do_not_count(changes: dict[str, object]) -> None:
    assert after(None, learned().model_copy(update=changes)) is None


def test_no_update_takes_longer_than_its_round() -> None:
    found = after(None, learned().model_copy(update={"held_s": 1.0}))
    assert found is not None
    assert (found.fixed_s, found.actor_s) == (0.0, 0.5)
