"""What rounds were billed, from plans that come once, twice, or not at all."""

from nitro.pool.round_calls import Bills
from shared.contracts.billing import LedgerLine
from shared.contracts.rounds import RoundPlan
from tests.services.learner.made_rounds import plan

LEDGER = tuple(
    LedgerLine(
        round=index,
        attempt=0,
        item="lambda_requests",
        quantity=1.0,
        unit="request",
        unit_price_usd=amount_usd,
        amount_usd=amount_usd,
    )
    for index, amount_usd in ((0, 1.0), (0, 2.0), (1, 4.0), (2, 8.0))
)


def told(begin: int, end: int, *, settled_rounds: int) -> RoundPlan:
    """A plan with lines of the ledger."""
    lines = {"settled_from": begin, "settled": LEDGER[begin:end], "settled_rounds": settled_rounds}
    return plan("hopper-1").model_copy(update=lines)


def test_each_line_counts_once_and_none_is_told_before_all_are_there() -> None:
    bills = Bills()
    bill = bills.of(0)
    for twice in range(2):
        bills.add(told(0, 1, settled_rounds=0), list)
        assert bill() is None, twice
    bills.add(told(1, 3, settled_rounds=1), list)
    assert (bill(), bills.of(1)()) == (3.0, None)


def test_lines_of_a_plan_that_never_arrived_are_looked_up() -> None:
    bills = Bills()
    bills.add(told(0, 1, settled_rounds=0), list)
    bills.add(told(2, 3, settled_rounds=2), lambda: LEDGER)
    bills.add(told(3, 4, settled_rounds=3), list)
    assert [bills.of(index)() for index in range(4)] == [3.0, 4.0, 8.0, None]
