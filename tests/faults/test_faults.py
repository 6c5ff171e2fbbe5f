"""What breaks in practice, broken on purpose in the real processes."""

import threading
import time
from collections.abc import Callable

from tests.e2e.runs import PATIENCE_S, final_weights, tiny, train, wait_finished, wait_until
from tests.faults.rig import Rig

TWO_ACTORS = tiny(
    scaling={"policy": "fixed", "num_actors": 2},
    evaluation={"every_rounds": 0},
    stop={"max_rounds": 2},
)


def test_actors_killed_mid_rollout_are_started_again_and_the_weights_are_the_same(
    broken: Rig,
) -> None:
    spec = tiny(seed=2, stop={"max_rounds": 3}, steps_per_actor=2048)
    whole = train(broken.client, spec)
    before = broken.stats()["crashes_on_purpose"]
    broken.break_actors(crash_next=3, crash_after_ms=5.0)
    job = train(broken.client, spec)
    assert job.status == "succeeded"
    assert broken.stats()["crashes_on_purpose"] > before
    assert all(c["used"] == c["launched"] and c["lost"] == 0 for c in broken.counts(job))
    assert final_weights(broken.runs_dir, job.job_id) == final_weights(
        broken.runs_dir, whole.job_id
    )


def test_a_round_that_lost_every_actor_is_reopened(broken: Rig) -> None:
    train(broken.client, TWO_ACTORS)  # its environment is described before faults are on
    # Every actor and its one re-issue.
    broken.break_actors(crash_next=4)
    job = train(broken.client, TWO_ACTORS)
    assert job.status == "succeeded"
    assert [c["used"] for c in broken.counts(job)] == [2, 2]
    plans = [record.plan for record in broken.client.every_round(job.job_id)]
    assert plans[0].attempt == 1
    assert "reopened" in (broken.system.logs / "learner.log").read_text()


def test_a_round_that_is_lost_again_fails_the_job_with_a_reason_and_can_be_resumed(
    broken: Rig,
) -> None:
    train(broken.client, TWO_ACTORS)
    broken.break_actors(crash_rate=1.0)
    job = train(broken.client, TWO_ACTORS)
    assert (job.status, job.stop_reason) == ("failed", "error")
    assert job.error is not None
    assert "only 0 of 2 trajectories arrived" in job.error
    assert "reopening it did not help" in job.error
    broken.break_actors()
    broken.client.resume(job.job_id)
    assert wait_finished(broken.client, job.job_id).status == "succeeded"


def test_a_duplicate_delivery_is_counted_and_used_once(broken: Rig) -> None:
    spec = tiny(evaluation={"every_rounds": 0}, stop={"max_rounds": 4})
    broken.break_actors(duplicate_rate=1.0)
    job = train(broken.client, spec)
    counts = broken.counts(job)
    assert all(c["used"] == c["launched"] for c in counts)
    # A second delivery that comes after its round is closed is in no record.
    assert broken.stats()["duplicates"] > 0
    assert sum(c["duplicate"] for c in counts) > 0
    assert all(c["late"] == 0 for c in counts)


def test_a_scaler_killed_mid_round_launches_nothing_twice(broken: Rig) -> None:
    spec = tiny(
        seed=4,
        # Of this test alone: what an actor said of an environment is forgotten after some minutes,
        # and asking once more is an invocation, too.
        env_kwargs={"sutton_barto_reward": False},
        scaling={"policy": "fixed", "num_actors": 8},
        evaluation={"every_rounds": 0},
        stop={"max_rounds": 12},
    )
    whole = train(broken.client, spec)
    before = broken.stats()["invoked"]
    job_id = broken.client.submit(spec).job_id
    broken.hold_round(job_id, after=2, delay_ms=500.0)
    broken.system.kill("scaler")
    broken.break_actors()
    broken.system.restart("scaler")
    job = wait_finished(broken.client, job_id)
    assert job.status == "succeeded"
    # All eight had been sent, so they are eight in each of twelve rounds, and no more.
    assert broken.stats()["invoked"] - before == 12 * 8
    assert final_weights(broken.runs_dir, job_id) == final_weights(broken.runs_dir, whole.job_id)


def test_a_job_waits_for_a_cache_that_dies_without_cost_and_goes_on_by_itself(broken: Rig) -> None:
    spec = tiny(seed=6, stop={"max_rounds": 8})
    whole = train(broken.client, spec)
    broken.break_actors(start_delay_ms=1000.0)  # else it may have ended before it is looked at
    job_id = broken.client.submit(spec).job_id
    wait_until(broken.client, job_id, lambda job: job.progress.rounds >= 3, broken.system)
    path = broken.system.logs / "learner.log"
    earlier = len(path.read_text())

    def log() -> str:
        return path.read_text()[earlier:]

    broken.system.kill("cache")
    broken.break_actors()
    _wait_for(lambda: "no work without the cache" in log())
    assert "trajectory cache at redis://" in log()
    leases = log().count("job leased")
    billed = broken.client.cost(job_id).by_item.get("learner")
    assert billed
    # Longer than a lease lasts and than several tries to reach the cache.
    threading.Event().wait(4.0)
    assert broken.client.get(job_id).status == "queued"
    assert log().count("job leased") == leases
    # Once that the connection broke, and once that there is none; not at every try.
    assert log().count("no work without the cache") <= 2
    assert broken.client.cost(job_id).by_item.get("learner") == billed
    broken.system.restart("cache")
    job = wait_finished(broken.client, job_id)
    assert (job.status, job.error) == ("succeeded", None)
    assert final_weights(broken.runs_dir, job_id) == final_weights(broken.runs_dir, whole.job_id)


def test_a_learner_that_is_asked_to_end_is_followed_by_the_next(broken: Rig) -> None:
    job_id = broken.client.submit(tiny(stop={"max_rounds": 12})).job_id
    wait_until(broken.client, job_id, lambda job: job.progress.rounds >= 2, broken.system)
    broken.terminate("learner")
    broken.system.restart("learner")
    job = wait_finished(broken.client, job_id)
    assert (job.status, job.progress.rounds) == ("succeeded", 12)


def _wait_for(condition: Callable[[], bool]) -> None:
    give_up_at, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not condition():
        assert time.monotonic() < give_up_at
        pause.wait(0.02)
