"""How many environments a job keeps warm: numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.book.records import JobRecord
from services.scaler.money.kept_warm import (
    BILLING_STEP_S,
    WarmNumbers,
    keeping,
    kept_warm,
    least_warm,
    most_needed,
    warm_numbers,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress, ScalingSwitch
from shared.contracts.scaling_spec import FixedScaling, NitroScaling
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.money.test_accounting_spending import attempt
from tests.services.scaler.scaling.seen import policies

HALVING = NitroScaling(decay=0.5)


def job(*switches: tuple[int, int], rounds: int = 0, **spec: object) -> Job:
    """A job of 8 to 64 actors, at most 64, 32, 16, 8, 8 ...; it gets fixed numbers later."""
    fields = {"scaling": HALVING.model_dump(), "evaluation": {"every_rounds": 0}, **spec}
    return Job(
        job_id="job",
        spec=JobSpec.model_validate(fields),
        environment=HOPPER,
        status="running",
        created_at=0.0,
        progress=JobProgress(rounds=rounds),
        switches=tuple(
            ScalingSwitch(
                round=k, at=0.0, scaling=FixedScaling(policy="fixed", num_actors=num_actors)
            )
            for k, num_actors in switches
        ),
    )


def record(
    *switches: tuple[int, int],
    rounds: int = 0,
    warm: int | None = None,
    since: float = 0.0,
    environments: int = 0,
) -> JobRecord:
    return JobRecord(
        job=job(*switches, rounds=rounds), warm=warm, warm_since=since, environments=environments
    )


@pytest.mark.parametrize(
    ("switches", "most"),
    [
        ((), [64, 32, 16, 8, 8]),
        (((3, 20),), [64, 32, 20, 20, 20]),
        (((1, 10),), [64, 10, 10, 10, 10]),
        (((1, 50), (2, 9)), [64, 50, 9, 9, 9]),
        (((0, 12), (4, 40)), [40, 40, 40, 40, 40]),
    ],
)
def test_a_job_may_need_what_the_policy_in_force_or_a_later_one_can_ask_for(
    switches: tuple[tuple[int, int], ...], most: list[int]
) -> None:
    assert [most_needed(job(*switches), k) for k in range(5)] == most


def test_episodes_of_an_evaluation_are_warm_beside_the_actors_inside_the_range() -> None:
    evaluated = job(evaluation={"every_rounds": 5, "episodes": 10})
    assert [most_needed(evaluated, k) for k in range(5)] == [64, 42, 26, 18, 18]


def test_where_rounds_overlap_the_number_stays() -> None:
    overlapping = job(algorithm="impact", rounds_in_flight=2)
    assert [most_needed(overlapping, k) for k in range(5)] == [64] * 5
    assert least_warm(overlapping.spec) == 64
    assert least_warm(job().spec) == 8
    held = JobRecord(job=overlapping, warm=64, warm_since=0.0)
    assert warm_numbers(held, 64, at=900.0) == WarmNumbers(usual=64, more=None, fewer=())


def test_before_a_learner_takes_it_a_job_keeps_what_its_next_round_may_need() -> None:
    assert kept_warm(record()) == 64
    assert kept_warm(record(rounds=2)) == 16
    assert kept_warm(record(rounds=2, warm=33)) == 33


def test_a_round_that_was_planned_by_an_earlier_version_keeps_what_that_kept() -> None:
    for earlier, kept in (
        (attempt(None), 64),
        (attempt(None, held_s=3.0), 16),  # over, but for what its actors came to
        (attempt(None).model_copy(update={"kept_warm": 9}), 16),
    ):
        under_way = record(rounds=2).model_copy(update={"open_attempts": (earlier,)})
        assert kept_warm(under_way) == kept


@pytest.mark.parametrize(
    ("warm", "passed_s", "expected"),
    [
        (None, 0.0, WarmNumbers(usual=64, more=None, fewer=(32, 8))),
        (64, 0.0, WarmNumbers(usual=64, more=None, fewer=(32, 8))),
        (64, BILLING_STEP_S - 0.001, WarmNumbers(usual=64, more=None, fewer=(32, 8))),
        (64, BILLING_STEP_S, WarmNumbers(usual=32, more=None, fewer=(8,))),
        (64, -0.001, WarmNumbers(usual=32, more=None, fewer=(8,))),
        (32, BILLING_STEP_S, WarmNumbers(usual=32, more=None, fewer=(8,))),
        (16, 0.0, WarmNumbers(usual=16, more=None, fewer=(8,))),
        (16, -0.001, WarmNumbers(usual=16, more=32, fewer=(8,))),
        (16, BILLING_STEP_S, WarmNumbers(usual=16, more=32, fewer=(8,))),
        (5, BILLING_STEP_S, WarmNumbers(usual=5, more=32, fewer=())),
    ],
)
def test_the_number_changes_once_in_five_minutes_unless_money_is_short(
    warm: int | None, passed_s: float, expected: WarmNumbers
) -> None:
    # Round 1 may need 32. A clock that was set back cannot tell: then the time counts as over.
    held = record(warm=warm, since=1000.0 if warm else 0.0)
    assert warm_numbers(held, 32, at=1000.0 * bool(warm) + passed_s) == expected


def test_what_is_let_go_of_is_warm_for_nobody() -> None:
    before = record(warm=64, since=5.0, environments=70)
    after = keeping(before, 20, at=400.0, provisioned=64)
    assert (after.warm, after.warm_since, after.environments) == (20, 400.0, 26)
    # The deployment kept 40 only, so 20 are let go of.
    assert keeping(before, 20, at=400.0, provisioned=40).environments == 50
    assert keeping(before, 41, at=400.0, provisioned=40).environments == 70
    assert keeping(record(warm=64, environments=9), 20, at=1.0, provisioned=64).environments == 0
    more = keeping(record(warm=20, environments=30), 64, at=7.0, provisioned=64)
    assert (more.warm, more.warm_since, more.environments) == (64, 7.0, 30)


def test_the_first_number_is_noted_and_the_same_one_changes_nothing() -> None:
    first = keeping(record(environments=3), 64, at=7.0, provisioned=64)
    assert (first.warm, first.warm_since, first.environments) == (64, 7.0, 3)
    assert keeping(first, 64, at=90.0, provisioned=64) is first


@given(data=st.data(), steps=st.lists(st.floats(0.0, 400.0), min_size=1, max_size=30))
def test_no_round_finds_fewer_warm_than_it_may_need(
    data: st.DataObject, steps: list[float]
) -> None:
    actors = JobSpec().actors
    spec = job().spec.model_copy(update={"scaling": data.draw(policies(actors))})
    running = JobRecord(job=job().model_copy(update={"spec": spec}))
    at, lowered_at = 0.0, 0.0
    for round_index, step_s in enumerate(steps):
        at += step_s
        before = running.warm
        numbers = warm_numbers(running, most_needed(running.job, round_index), at=at)
        assert numbers.more is None
        running = keeping(running, numbers.usual, at=at, provisioned=64)
        needed = most_needed(running.job, round_index)
        assert needed <= kept_warm(running) <= actors.max
        if before is None:
            lowered_at = at
        elif numbers.usual != before:
            assert numbers.usual == needed < before
            assert at - lowered_at >= BILLING_STEP_S
            lowered_at = at
        else:
            assert needed == before or at - lowered_at < BILLING_STEP_S
