"""Orders of plans that were written and not answered: handed out once, to whoever asks first."""

import threading
from concurrent.futures import ThreadPoolExecutor

from services.scaler.book.records import PlannedAttempt
from services.scaler.launching.orders import LaunchOrder, WaitingOrders
from shared.contracts.job_spec import JobSpec
from tests.services.scaler.rounds.test_order import planned


def waiting(orders: WaitingOrders, written: PlannedAttempt) -> tuple[LaunchOrder, PlannedAttempt]:
    """Let an order wait; return it, and its plan as it is stored."""
    order = LaunchOrder(
        plan=written.plan,
        lease_id=written.lease_id,
        spec=JobSpec(),
        samples=(0, 1),
        evaluations=(),
    )
    assert order.key == written.key
    return order, written.model_copy(update={"order_name": orders.add(order)})


def test_the_order_of_a_written_plan_is_taken_once() -> None:
    orders = WaitingOrders()
    order, written = waiting(orders, planned(3, 0))
    _, other_round = waiting(orders, planned(4, 0))
    _, other_lease = waiting(orders, planned(3, 0, lease_id="b"))
    assert orders.take(written) is order
    assert orders.take(written) is None
    assert orders.take(other_round) is not None
    assert orders.take(other_lease) is not None


def test_whoever_comes_at_the_same_time_gets_nothing() -> None:
    orders = WaitingOrders()
    order, written = waiting(orders, planned(0, 0))
    start = threading.Barrier(8)

    def take() -> LaunchOrder | None:
        start.wait(10)
        return orders.take(written)

    with ThreadPoolExecutor(8) as pool:
        taken = [f.result() for f in [pool.submit(take) for _ in range(8)]]
    assert [one for one in taken if one is not None] == [order]


def test_of_equal_plans_for_one_launch_only_the_written_one_is_launched() -> None:
    orders = WaitingOrders()
    order, written = waiting(orders, planned(0, 0))
    _, before = waiting(orders, planned(0, 0))
    assert orders.take(written) is order
    _, after = waiting(orders, planned(0, 0))
    assert orders.take(written) is None
    assert orders.take(before) is None
    assert orders.take(after) is None


def test_plans_of_other_processes_and_versions_have_no_order() -> None:
    orders = WaitingOrders()
    _, written = waiting(WaitingOrders(), planned(0, 0))
    assert orders.take(written) is None
    assert orders.take(planned(0, 0)) is None
    old = planned(0, 0).model_dump(exclude={"order_name"})
    assert PlannedAttempt.model_validate(old) == planned(0, 0)
