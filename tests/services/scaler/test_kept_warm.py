"""How many environments a job keeps warm: numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.kept_warm import (
    BILLING_STEP_S,
    first_asked,
    keeping,
    kept_warm,
    most_asked,
    worth_keeping,
)
from services.scaler.store.base import JobRecord
from shared.job_spec import JobSpec
from shared.jobs import Job, JobProgress, ScalingSwitch
from shared.scaling_spec import FixedScaling, NitroScaling
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.scaling.seen import policies

HALVING = NitroScaling(decay=0.5)


def job(*switches: tuple[int, int], rounds: int = 0) -> Job:
    """A job of 8 to 64 actors, at most 64, 32, 16, 8, 8 ...; it gets fixed numbers later."""
    return Job(
        job_id="job",
        spec=JobSpec(scaling=HALVING),
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
def test_a_job_may_want_what_the_policy_in_force_or_a_later_one_can_ask_for(
    switches: tuple[tuple[int, int], ...], most: list[int]
) -> None:
    assert [most_asked(job(*switches), k) for k in range(5)] == most
    assert first_asked(job(*switches).spec) == 64


def test_before_its_first_plan_a_job_keeps_what_its_next_round_may_want() -> None:
    assert kept_warm(record()) == 64
    assert kept_warm(record(rounds=2)) == 16
    assert kept_warm(record(rounds=2, warm=33)) == 33


@pytest.mark.parametrize(
    ("warm", "passed_s", "expected"),
    [
        (None, 0.0, 32),
        (64, 0.0, 64),
        (64, BILLING_STEP_S - 0.001, 64),
        (64, BILLING_STEP_S, 32),
        (64, -5.0, 64),
        (32, 0.0, 32),
        (16, 0.0, 32),
        (16, BILLING_STEP_S, 32),
    ],
)
def test_fewer_are_kept_once_in_five_minutes_and_more_at_once(
    warm: int | None, passed_s: float, expected: int
) -> None:
    found = worth_keeping(record(warm=warm, since=1000.0), 1, at=1000.0 + passed_s)
    assert found == expected


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
def test_no_round_finds_fewer_warm_than_it_may_ask_for(
    data: st.DataObject, steps: list[float]
) -> None:
    spec = JobSpec()
    scaling = data.draw(policies(spec.actors))
    running = JobRecord(
        job=job().model_copy(update={"spec": spec.model_copy(update={"scaling": scaling})})
    )
    at, lowered_at = 0.0, 0.0
    for round_index, step_s in enumerate(steps):
        at += step_s
        before = running.warm
        num = worth_keeping(running, round_index, at=at)
        running = keeping(running, num, at=at, provisioned=64)
        assert most_asked(running.job, round_index) <= kept_warm(running) <= spec.actors.max
        if before is None or num != before:
            assert before is None or (num < before and at - lowered_at >= BILLING_STEP_S)
            lowered_at = at
