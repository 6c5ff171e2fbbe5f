"""Learner functions broken on purpose: every gradient is accounted for, and none is used twice."""

from typing import Any

from shared.contracts.gradients import GradientRecord
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import tiny, train, wait_finished, wait_until
from tests.faults.rig import Rig


def on_functions(**changes: Any) -> JobSpec:
    """A Pendulum job of a few rounds, four slices and two passes each."""
    usual: dict[str, Any] = {
        "env_id": "Pendulum-v1",
        "learner": "functions",
        "learner_functions": {"num": 3, "slices": 4},
        "actors": {"min": 2, "max": 2},
        "scaling": {"policy": "fixed", "num_actors": 2},
        "stop": {"max_rounds": 3},
    }
    return tiny(**{**usual, **changes})


def assert_accounted_for(records: list[GradientRecord], *, rounds: int) -> None:
    assert len(records) == rounds
    for record in records:
        assert record.asked == 8
        assert record.asked == record.used + record.stale + record.lost
        assert len(record.staleness) == record.used == sum(record.queued)
    versions = [record.version for record in records]
    assert versions == sorted(set(versions))


def test_a_job_learns_on_functions_and_its_bill_has_no_gpu(broken: Rig) -> None:
    before = broken.stats(gradients=True)["invoked"]
    job = train(broken.client, on_functions())
    assert (job.status, job.error, job.learner) == ("succeeded", None, "cpu")
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    assert all(record.lost == 0 for record in records)  # how many are too old is up to the machine
    assert broken.stats(gradients=True)["invoked"] - before == 24
    cost = broken.client.cost(job.job_id)
    assert cost.reserved_usd == 0.0
    requests = [x for x in broken.client.every_line(job.job_id) if x.item == "gradient_requests"]
    assert [line.quantity for line in requests] == [8.0, 8.0, 8.0]
    assert cost.by_item["gradient_duration"] > 0.0


def test_killed_functions_are_started_once_more(broken: Rig) -> None:
    train(broken.client, on_functions(stop={"max_rounds": 1}))
    broken.break_gradients(crash_next=3)
    job = train(broken.client, on_functions())
    broken.break_gradients()
    assert job.status == "succeeded"
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    requests = [x for x in broken.client.every_line(job.job_id) if x.item == "gradient_requests"]
    assert sum(line.quantity for line in requests) == 24.0 + 3.0, "each execution is billed"


def test_functions_that_keep_dying_lose_gradients_but_not_the_job(broken: Rig) -> None:
    broken.break_gradients(crash_rate=0.5, seed=1)
    job = train(broken.client, on_functions())
    broken.break_gradients()
    assert job.status == "succeeded"
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    assert sum(record.lost for record in records) > 0


def test_throttled_functions_are_tried_again(broken: Rig) -> None:
    before = broken.stats(gradients=True)["throttled"]
    broken.break_gradients(throttle_rate=0.3, seed=2)
    job = train(broken.client, on_functions())
    broken.break_gradients()
    assert job.status == "succeeded"
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    assert all(record.lost == 0 for record in records)  # how many are too old is up to the machine
    assert broken.stats(gradients=True)["throttled"] > before


def test_a_gradient_that_is_delivered_twice_is_used_once(broken: Rig) -> None:
    before = broken.stats(gradients=True)["duplicates"]
    broken.break_gradients(duplicate_rate=1.0)
    job = train(broken.client, on_functions())
    broken.break_gradients()
    assert job.status == "succeeded"
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    assert all(record.lost == 0 for record in records)  # how many are too old is up to the machine
    assert broken.stats(gradients=True)["duplicates"] > before
    assert sum(record.duplicate for record in records) > 0


def test_a_learner_that_is_killed_while_gradients_are_computed_goes_on(broken: Rig) -> None:
    broken.break_gradients(start_delay_ms=300.0)
    job_id = broken.client.submit(on_functions()).job_id
    wait_until(
        broken.client,
        job_id,
        lambda _: broken.stats(gradients=True)["in_flight"] > 0,
        broken.system,
    )
    broken.system.kill("learner")
    broken.system.restart("learner")
    broken.break_gradients()
    job = wait_finished(broken.client, job_id)
    assert (job.status, job.error) == ("succeeded", None)
    assert_accounted_for(broken.gradients(job), rounds=3)
    assert broken.client.cost(job_id).reserved_usd == 0.0


def test_a_scaler_that_is_killed_while_gradients_are_computed_goes_on(broken: Rig) -> None:
    broken.break_gradients(start_delay_ms=300.0)
    job_id = broken.client.submit(on_functions()).job_id
    wait_until(
        broken.client,
        job_id,
        lambda _: broken.stats(gradients=True)["in_flight"] > 0,
        broken.system,
    )
    broken.system.kill("scaler")
    broken.system.restart("scaler")
    broken.break_gradients()
    job = wait_finished(broken.client, job_id)
    assert (job.status, job.error) == ("succeeded", None)
    records = broken.gradients(job)
    assert_accounted_for(records, rounds=3)
    assert all(record.lost == 0 for record in records), "what was in flight is asked for again"
    assert broken.client.cost(job_id).reserved_usd == 0.0


def test_impact_learns_on_functions_while_actors_go_on(broken: Rig) -> None:
    job = train(broken.client, on_functions(algorithm="impact", rounds_in_flight=2))
    assert (job.status, job.error) == ("succeeded", None)
    # Where rounds overlap, one may pass whose samples wait for the next one's.
    records = broken.gradients(job)
    assert records
    for record in records:
        assert record.asked == record.used + record.stale + record.lost
        assert record.used == len(record.staleness)
    assert sum(record.used for record in records) > 0
    assert broken.client.cost(job.job_id).reserved_usd == 0.0
