"""Bills, added up independently."""

from decimal import Decimal

import pytest

from shared.contracts.billing import JobCost, LedgerLine
from shared.money.prices import AWS_US_EAST_1_2026_11 as TABLE
from tests.own_prices import FRANKFURT
from tests.services.scaler.running import Scaler, StartScaler, result

SPEC = {
    "actors": {"min": 3, "max": 3},
    "evaluation": {"every_rounds": 0},
    "stop": {"max_rounds": 2},
}


def train(scaler: Scaler, rounds: int = 2, **spec: object) -> str:
    lease = scaler.begin(**SPEC, **spec)
    for index in range(rounds + 1):
        scaler.played(lease, index, previous=result(index - 1) if index else None)
    scaler.finish(lease)
    return lease.job.job_id


def decimal_sum(cost: JobCost) -> Decimal:
    return sum(
        (Decimal(line.quantity) * Decimal(line.unit_price_usd) for line in cost.lines), Decimal(0)
    )


def test_the_bill_is_the_sum_of_its_lines(scaler: Scaler) -> None:
    cost = scaler.cost(train(scaler))
    assert cost.reserved_usd == 0
    assert cost.settled_usd == pytest.approx(float(decimal_sum(cost)), rel=1e-12)
    assert sum(cost.by_item.values()) == pytest.approx(cost.settled_usd, rel=1e-12)
    assert cost.price_table == TABLE.name
    assert all(text.endswith(".") for text in cost.assumptions)


def test_a_bill_comes_in_pages_that_all_have_its_sums(scaler: Scaler) -> None:
    job_id = train(scaler)
    whole = scaler.cost(job_id)
    assert whole.next_cursor is None
    assert len(whole.lines) > 4
    lines: list[LedgerLine] = []
    cursor: str | None = "0"
    while cursor is not None:
        query: dict[str, int | str] = {"limit": 4, "cursor": cursor}
        answer = scaler.http.get(f"/v1/jobs/{job_id}/cost", params=query)
        page = JobCost.model_validate_json(answer.content)
        rest = {"lines": page.lines, "next_cursor": page.next_cursor}
        assert page == whole.model_copy(update=rest)
        assert len(page.lines) <= 4
        lines += page.lines
        cursor = page.next_cursor
    assert lines == list(whole.lines)
    sums = scaler.http.get(f"/v1/jobs/{job_id}/cost", params={"limit": 0}).json()
    assert (sums["lines"], sums["next_cursor"]) == ([], "0")


def test_a_job_that_is_followed_has_each_line_of_its_ledger_read_once(
    scaler: Scaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = scaler.begin(**{**SPEC, "stop": {"max_rounds": 9}})
    read_lines = scaler.parts.book.lines
    num_read = 0

    def counting(job_id: str, *, skip: int = 0, limit: int | None = None) -> list[LedgerLine]:
        nonlocal num_read
        found = read_lines(job_id, skip=skip, limit=limit)
        num_read += len(found)
        return found

    for index in range(6):
        scaler.played(lease, index, previous=result(index - 1) if index else None)
        with monkeypatch.context() as counted:
            counted.setattr(scaler.parts.book, "lines", counting)
            for _ in range(3):
                shown = scaler.rounds(lease.job.job_id).rounds
    lines = read_lines(lease.job.job_id)
    assert num_read == len(lines) > 0
    for record in shown:
        billed = sum(line.amount_usd for line in lines if line.round == record.plan.round)
        assert record.cost_usd == pytest.approx(billed)
        assert (record.reserved_usd > 0) == (record.plan.round == 5)


def test_projected_rounds_cost_what_a_hand_calculation_says(scaler: Scaler) -> None:
    # Each round: 3 actors of 100 ms on a full core, hence 172.75 ms at 1,024 MB, billed as 173 ms;
    # the learner needs 0.5 s of its own (0.3 update, 0.1 curvature, 0.1 checkpoint). The first
    # round finds no warm environment: it waits 2 s for three, each of which is billed for them.
    job_id = train(scaler)
    cost = scaler.cost(job_id)
    launches = [record.launches for record in scaler.rounds(job_id).rounds]
    launch_s = sum(Decimal(made.launch_s or 0.0) for made in launches if made)
    actor_s = Decimal("0.1") * 1769 / 1024
    held_s = 2 * (actor_s + Decimal("0.5")) + 2 + launch_s
    expected = {
        "learner": held_s * Decimal("0.9776") / 3600,
        "cache": held_s * Decimal("0.0128") / 3600,
        "scaler": held_s
        * (Decimal("0.25") * Decimal("0.04048") + Decimal("0.5") * Decimal("0.004445"))
        / 3600,
        "lambda_duration": (6 * Decimal("0.173") + 3 * 2) * Decimal("0.0000166667"),
        "lambda_requests": 6 * Decimal("0.0000002"),
    }
    assert {k: float(v) for k, v in cost.by_item.items()} == pytest.approx(
        {k: float(v) for k, v in expected.items()}, rel=1e-9
    )
    assert cost.projected_wall_s == pytest.approx(float(held_s))
    assert 0 < launch_s < 1


def test_the_same_rounds_on_servers_stand_beside_the_bill(scaler: Scaler) -> None:
    # Three actors of 100 ms on cores of their own, and the learner's 0.5 s, twice.
    cost = scaler.cost(train(scaler))
    assert [(s.learner_instance, s.actor_instance) for s in cost.serverful] == [
        ("p3.2xlarge", "c5.4xlarge"),
        ("g6.2xlarge", "c5.4xlarge"),
    ]
    for servers, usd_per_hour in zip(cost.serverful, ("3.74", "1.6576"), strict=True):
        assert servers.wall_s == pytest.approx(1.2)
        assert servers.total_usd == pytest.approx(1.2 * float(usd_per_hour) / 3600)


def test_a_job_on_cores_pays_for_them_and_is_compared_with_servers_that_have_them(
    start_scaler: StartScaler,
) -> None:
    with start_scaler(cpu_learner_vcpu=4, cpu_learner_memory_gb=8) as scaler:
        cost = scaler.cost(train(scaler, learner="auto"))
    usd_per_hour = 4 * 0.04048 + 8 * 0.004445
    assert cost.by_item["learner"] == pytest.approx(cost.projected_wall_s * usd_per_hour / 3600)
    task = "Fargate task of 4 vCPU and 8 GB"
    assert f"The learner is billed as one {task}." in cost.assumptions
    assert [servers.learner_instance for servers in cost.serverful] == ["p3.2xlarge", task]
    own = cost.serverful[1]
    assert own.total_usd == pytest.approx(own.wall_s * (usd_per_hour + 0.68) / 3600)


def test_on_aws_the_time_that_passed_is_billed(start_scaler: StartScaler) -> None:
    with start_scaler(ledger_clock="wall") as scaler:
        job_id = train(scaler)
        cost = scaler.cost(job_id)
        job = scaler.job(job_id)
    assert job.started_at is not None
    assert job.finished_at is not None
    billed_s = sum(line.quantity for line in cost.lines if line.item == "learner")
    assert billed_s == pytest.approx(job.finished_at - job.started_at, abs=0.05)
    assert cost.by_item["lambda_duration"] == pytest.approx(6 * 0.1 * TABLE.lambda_usd_per_gb_s)


def test_money_is_reserved_before_actors_start_and_released_when_all_is_known(
    scaler: Scaler,
) -> None:
    lease = scaler.begin(**SPEC)
    scaler.played(lease, 0)
    during = scaler.cost(lease.job.job_id)
    held = (
        TABLE.learner_usd_per_s("g6.2xlarge")
        + TABLE.cache_usd_per_s("cache.t4g.micro", "valkey")
        + TABLE.fargate_usd_per_s(vcpu=0.25, memory_gb=0.5)
    )
    # Two executions of three actors, each a cold start of 2 s and the time-out of 60 s.
    worst = 6 * (62 * TABLE.lambda_usd_per_gb_s + TABLE.lambda_usd_per_request) + 190 * held
    assert during.lines == ()
    assert during.settled_usd == 0.0
    assert during.reserved_usd == pytest.approx(worst)
    plan = scaler.round(lease, 1, previous=result(0))
    after = scaler.cost(lease.job.job_id)
    assert after.lines == plan.settled
    assert plan.spent_usd == pytest.approx(sum(line.amount_usd for line in plan.settled))


def test_the_bill_of_a_round_is_final_once_all_it_launched_has_ended(scaler: Scaler) -> None:
    lease = scaler.begin(**SPEC | {"stop": {"max_rounds": 5}})
    ended = scaler.lambdas.hold_rollouts()
    assert scaler.round(lease, 0).settled_rounds == 0
    assert scaler.round(lease, 1, previous=result(0)).settled_rounds == 0
    ended.set()
    scaler.landed(lease.job.job_id)
    last = scaler.round(lease, 2, previous=result(1))
    assert last.settled_rounds == 2
    assert (last.settled_from, {line.round for line in last.settled}) == (0, {0, 1})
    following = scaler.round(lease, 3, previous=result(2))
    assert following.settled_from == len(last.settled)
    scaler.landed(lease.job.job_id)


def test_a_round_that_is_made_again_has_no_final_bill(scaler: Scaler) -> None:
    lease = scaler.begin(**SPEC)
    scaler.played(lease, 0)
    ended = scaler.lambdas.hold_rollouts()
    assert scaler.round(lease, 1, previous=result(0)).settled_rounds == 1
    scaler.http.delete(f"/v1/leases/{lease.lease_id}")
    assert scaler.round(scaler.lease(), 0).settled_rounds == 0
    ended.set()
    scaler.landed(lease.job.job_id)


def test_every_line_is_told_to_the_learner_once_or_shown_in_the_bill(scaler: Scaler) -> None:
    lease = scaler.begin(**SPEC)
    told: list[LedgerLine] = []
    for index in range(3):
        plan = scaler.round(lease, index, previous=result(index - 1) if index else None)
        told += plan.settled
        scaler.landed(lease.job.job_id)
    scaler.finish(lease)
    lines = list(scaler.cost(lease.job.job_id).lines)
    assert told == lines[: len(told)]


def test_time_that_a_reservation_has_room_for_is_not_shown_on_top_of_it(
    start_scaler: StartScaler,
) -> None:
    now = [1_800_000_000.0]
    with start_scaler(now=lambda: now[0], ledger_clock="wall") as scaler:
        lease = scaler.begin(**SPEC)
        scaler.played(lease, 0)
        reserved_usd = scaler.cost(lease.job.job_id).reserved_usd
        now[0] += 20.0
        later = scaler.cost(lease.job.job_id)
        assert (later.settled_usd, later.reserved_usd) == (0.0, reserved_usd)
        now[0] += 3600.0
        scaler.http.put(f"/v1/leases/{lease.lease_id}")
        overdue = scaler.cost(lease.job.job_id)
        assert overdue.settled_usd == 0.0
        assert overdue.reserved_usd > reserved_usd


def test_a_round_that_was_reopened_shows_what_both_its_launches_set_aside(scaler: Scaler) -> None:
    may_end = scaler.lambdas.hold_rollouts()
    lease = scaler.begin(**SPEC)
    scaler.round(lease, 0)
    first_usd = scaler.cost(lease.job.job_id).reserved_usd
    scaler.round(lease, 0, attempt=1, missing=(2,))
    (shown,) = scaler.rounds(lease.job.job_id).rounds
    reserved_usd = scaler.cost(lease.job.job_id).reserved_usd
    may_end.set()
    scaler.landed(lease.job.job_id)
    assert shown.cost_usd == 0.0
    assert shown.reserved_usd == pytest.approx(reserved_usd)
    assert shown.reserved_usd > first_usd


def test_rounds_are_listed_page_by_page(scaler: Scaler) -> None:
    job_id = train(scaler)
    path = f"/v1/jobs/{job_id}/rounds"
    first = scaler.http.get(path, params={"limit": 2}).json()
    rest = scaler.http.get(path, params={"cursor": first["next_cursor"]}).json()
    indices = [r["plan"]["round"] for r in first["rounds"] + rest["rounds"]]
    assert (indices, rest["next_cursor"]) == ([0, 1], None)
    assert [r["plan"]["round"] for r in rest["endings"]] == [2]


def test_more_than_one_price_table_can_bill(start_scaler: StartScaler) -> None:
    paper = {"price_table": "paper", "learner_instance": "p3.2xlarge", "cache_node": "none"}
    with start_scaler(**paper) as scaler:
        cost = scaler.cost(train(scaler))
    held_s = cost.projected_wall_s
    (servers,) = cost.serverful  # the paper's have the same learner
    assert servers.learner_instance == "p3.2xlarge"
    assert cost.by_item["learner"] == pytest.approx(held_s * 3.06 / 3600)
    assert sum(line.quantity for line in cost.lines if line.item == "lambda_requests") == 6
    assert cost.by_item["lambda_requests"] == 0


def test_a_table_of_the_operators_own_can_bill(start_scaler: StartScaler) -> None:
    with start_scaler(prices=FRANKFURT) as scaler:
        cost = scaler.cost(train(scaler))
    assert cost.price_table == "frankfurt"
    assert cost.by_item["learner"] == pytest.approx(cost.projected_wall_s * 1.25 / 3600)
    assert cost.serverful == (), "it has no price of the machines to compare with"
    assert not any(line.startswith("Servers:") for line in cost.assumptions)
    assert any("made up (2026-11)" in line for line in cost.assumptions)


def test_a_table_with_the_machines_to_compare_with_compares(start_scaler: StartScaler) -> None:
    machines = {"g6.2xlarge": 1.25, "c5.4xlarge": 0.75}
    with start_scaler(prices={**FRANKFURT, "learner_usd_per_hour": machines}) as scaler:
        (servers,) = scaler.cost(train(scaler)).serverful
    assert (servers.learner_instance, servers.actor_instance) == ("g6.2xlarge", "c5.4xlarge")
    assert servers.total_usd == pytest.approx(servers.wall_s * 2.0 / 3600)
