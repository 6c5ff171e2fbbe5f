"""Collecting from a real cache server: nothing twice, nothing stale, nothing unaccounted for."""

import threading
from collections.abc import Collection, Iterator
from itertools import count

import pytest
import redis

from services.learner.rounds.collector import RoundCollector
from shared.cache import keys
from shared.cache.arrivals import Arrival, FailureKind
from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from tests.services.learner.made_rounds import (
    ENVIRONMENT,
    STEPS,
    deliver,
    deliver_episode,
    plan,
)

_JOBS = count()


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


@pytest.fixture
def job_id() -> str:
    return f"collector-{next(_JOBS)}"


def _collector(
    cache: TrajectoryCache,
    made: RoundPlan,
    leave: threading.Event | None = None,
    must_leave: threading.Event | None = None,
    taken: Collection[int] = (),
) -> RoundCollector:
    return RoundCollector(
        cache,
        made,
        ENVIRONMENT,
        steps_per_actor=STEPS,
        envs_per_actor=1,
        should_leave=(leave or threading.Event()).is_set,
        must_leave=(must_leave or threading.Event()).is_set,
        taken=taken,
    )


def waited(collector: RoundCollector) -> RoundCollector:
    """Wait for the trajectories; return the collector."""
    collector.trajectories()
    return collector


class _Follows(TrajectoryCache):
    """Delivers for actor 1 as soon as its failure has been told."""

    def wait_arrivals(
        self, job_id: str, round: int, *, timeout_s: float, limit: int = 256
    ) -> list[Arrival]:
        told = super().wait_arrivals(job_id, round, timeout_s=timeout_s, limit=limit)
        if any(arrival.failed is not None for arrival in told):
            deliver(self, job_id, 1)
        return told


def test_trajectories_come_in_the_order_of_their_index(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id))
    for index in (2, 0, 3, 1):
        deliver(cache, job_id, index)
    assert [t.actor_index for t in collector.trajectories()] == [0, 1, 2, 3]
    assert collector.missing == ()


def test_episodes_that_came_while_nobody_looked_are_read_after_the_deadline(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_actors=1, num_evaluations=2, deadline_s=0.0)
    deliver(cache, job_id, 0)
    deliver_episode(cache, job_id, 0)
    collector = _collector(cache, made)
    assert waited(collector).missing == ()
    deliver_episode(cache, job_id, 1)  # during the update
    assert [episode.episode_return for episode in collector.episodes()] == [0.0, 1.0]


def test_what_comes_after_the_update_is_late_and_not_used(
    cache: TrajectoryCache, job_id: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2, num_evaluations=1))
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
    assert len(collector.trajectories()) == 1
    deliver(cache, job_id, 1)  # given up, and yet
    deliver_episode(cache, job_id, 0)
    assert len(collector.episodes()) == 1
    counts = collector.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (2, 1, 1, 0)


def test_what_came_without_a_word_is_found_after_a_silence(
    cache: TrajectoryCache, cache_url: str, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.learner.rounds.collector._LONGEST_WAIT_S", 0.01)
    collector = _collector(cache, plan(job_id, num_actors=1, deadline_s=5.0))
    deliver(cache, job_id, 0)
    with redis.Redis.from_url(cache_url) as somebody:
        assert somebody.delete(keys.arrivals(job_id, 0)) == 1
    assert waited(collector).missing == ()


def test_it_waits_for_what_comes_later(cache: TrajectoryCache, cache_url: str, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2))
    deliver(cache, job_id, 0)

    def late() -> None:
        with TrajectoryCache(cache_url) as actor:
            deliver(actor, job_id, 1)

    thread = threading.Thread(target=late)
    thread.start()
    assert len(collector.trajectories()) == 2
    thread.join()


def test_results_gather_only_while_many_are_to_come(
    cache: TrajectoryCache, cache_url: str, job_id: str
) -> None:
    paused: list[float] = []
    rest = threading.Thread(target=lambda: deliver_all(range(0, 30)))

    def deliver_all(indices: range) -> None:
        with TrajectoryCache(cache_url) as actor:
            for index in indices:
                deliver(actor, job_id, index)

    def gather(seconds: float) -> None:
        paused.append(seconds)
        deliver_all(range(30, 200))
        rest.start()

    collector = RoundCollector(
        cache,
        plan(job_id, num_actors=200),
        ENVIRONMENT,
        steps_per_actor=STEPS,
        envs_per_actor=1,
        should_leave=lambda: False,
        must_leave=lambda: False,
        gather=gather,
    )
    assert [t.actor_index for t in collector.trajectories()] == list(range(200))
    assert len(paused) == 1
    rest.join()


def test_a_failed_launch_is_not_waited_for(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=3, deadline_s=600.0))
    deliver(cache, job_id, 0)
    deliver(cache, job_id, 2)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="throttled")
    assert waited(collector).missing == (1,)
    assert collector.failures == ("throttled",)
    counts = collector.close()
    assert (counts.launched, counts.used, counts.lost) == (3, 2, 1)


def test_the_deadline_counts_from_when_the_round_was_first_planned(
    cache: TrajectoryCache, job_id: str
) -> None:
    deliver(cache, job_id, 1)
    collector = _collector(cache, plan(job_id, deadline_s=600.0, age_s=601.0))
    assert [t.actor_index for t in collector.trajectories()] == [1]
    assert collector.missing == (0, 2, 3)
    assert collector.failures == ("no answer",)


def test_a_request_to_leave_ends_the_wait(cache: TrajectoryCache, job_id: str) -> None:
    leave = threading.Event()
    leave.set()
    collector = _collector(cache, plan(job_id, deadline_s=600.0), leave)
    assert waited(collector).missing == (0, 1, 2, 3)


def test_a_learner_that_starts_again_finds_what_had_arrived(
    cache: TrajectoryCache, job_id: str
) -> None:
    for index in range(4):
        deliver(cache, job_id, index)
    first = _collector(cache, plan(job_id)).trajectories()
    again = _collector(cache, plan(job_id)).trajectories()
    assert [t.actor_index for t in again] == [0, 1, 2, 3]
    assert (again[2].observation == first[2].observation).all()


def test_a_learner_that_starts_again_knows_who_failed(cache: TrajectoryCache, job_id: str) -> None:
    made = plan(job_id, num_actors=2, deadline_s=600.0)
    first = _collector(cache, made)
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
    assert waited(first).missing == (1,)
    again = _collector(cache, made)
    assert waited(again).failures == ("crashed",)
    assert again.close() == TrajectoryCounts(launched=2, used=1, late=0, duplicate=0, lost=1)


def test_a_learner_that_starts_again_knows_who_failed_in_which_attempt(
    cache: TrajectoryCache, job_id: str
) -> None:
    made, reopened = (plan(job_id, num_actors=2, deadline_s=600.0, attempt=n) for n in (0, 1))
    first = _collector(cache, made)
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
    assert waited(first).missing == (1,)
    first.prepare_reopening()
    first.reopen(reopened)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=1, reason="again")
    assert waited(first).failures == ("again",)
    assert waited(_collector(cache, reopened)).failures == ("again",)


def test_a_learner_that_starts_again_waits_for_who_was_launched_again(
    cache_url: str, cache: TrajectoryCache, job_id: str
) -> None:
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
    with _Follows(cache_url) as followed:
        made = plan(job_id, num_actors=2, deadline_s=600.0, attempt=1)
        assert waited(_collector(followed, made)).missing == ()


def test_a_failure_told_after_the_round_was_reopened_ends_no_wait(
    cache_url: str, job_id: str
) -> None:
    with _Follows(cache_url) as cache:
        deliver(cache, job_id, 0)
        cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
        # It takes in what is noted, and leaves the tokens where they are.
        collector = _collector(cache, plan(job_id, num_actors=2, deadline_s=0.0))
        assert waited(collector).failures == ("crashed",)
        collector.prepare_reopening()
        collector.reopen(plan(job_id, num_actors=2, deadline_s=600.0, attempt=1))
        assert waited(collector).missing == ()


def _blame(cache: TrajectoryCache, job_id: str, *indices: int, kind: FailureKind) -> None:
    for index in indices:
        cache.announce_failure(
            job_id,
            0,
            mode="sample",
            actor_index=index,
            attempt=0,
            reason=f"{kind} {index}",
            kind=kind,
        )


def test_nobody_waits_for_the_rest_once_the_environment_fails_in_so_many_that_no_quorum_can_come(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_actors=8, deadline_s=600.0).model_copy(update={"quorum": 4})
    _blame(cache, job_id, 0, 1, 2, 3, 4, kind="environment")
    collector = _collector(cache, made)
    assert waited(collector).missing == tuple(range(8))
    assert collector.doomed
    assert collector.blaming[0] == "environment 0"


def test_where_the_environment_hangs_in_several_the_rest_is_waited_for_nearly_as_long_again(
    cache: TrajectoryCache, job_id: str
) -> None:
    _blame(cache, job_id, 0, 1, kind="hung")
    collector = _collector(cache, plan(job_id, num_actors=64, deadline_s=600.0))
    before_s = collector.elapsed_s
    assert len(waited(collector).missing) == 64
    assert collector.doomed
    assert before_s < collector.elapsed_s < 600.0


@pytest.mark.parametrize(
    ("blaming", "kind", "delivered"),
    [
        ((0,), "hung", ()),  # bad luck of one
        ((0, 1, 2, 3, 4, 5), "lost", ()),  # nothing of the environment's doing
        ((0, 1, 2, 3, 4, 5), "hung", (6,)),  # it works for some
        ((0, 1, 2), "environment", ()),  # a quorum may still come
    ],
)
def test_otherwise_a_round_is_waited_for_to_its_deadline(
    cache: TrajectoryCache,
    job_id: str,
    blaming: tuple[int, ...],
    kind: FailureKind,
    delivered: tuple[int, ...],
) -> None:
    made = plan(job_id, num_actors=8, deadline_s=0.5).model_copy(update={"quorum": 4})
    _blame(cache, job_id, *blaming, kind=kind)
    for index in delivered:
        deliver(cache, job_id, index)
    collector = _collector(cache, made)
    collector.trajectories()
    assert not collector.doomed
    assert collector.remaining_s == 0.0


def test_an_episode_that_failed_is_not_waited_for_in_a_reopened_round(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_actors=1, deadline_s=600.0, attempt=1)
    made = made.model_copy(update={"num_evaluations": 1})
    cache.announce_failure(job_id, 0, mode="evaluate", actor_index=0, attempt=0, reason="crashed")
    assert _collector(cache, made).episodes() == ()


def test_a_duplicate_is_counted_and_used_once(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2))
    assert [deliver(cache, job_id, i) for i in (0, 0, 1, 0)] == [
        "stored",
        "duplicate",
        "stored",
        "duplicate",
    ]
    assert len(collector.trajectories()) == 2
    counts = collector.close()
    assert (counts.used, counts.duplicate, counts.lost, counts.late) == (2, 2, 0, 0)


def test_what_comes_after_the_close_is_late_and_not_kept(
    cache: TrajectoryCache, job_id: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2, deadline_s=0.0))
    collector.trajectories()
    counts = collector.close()
    assert (counts.used, counts.lost) == (0, 2)
    assert deliver(cache, job_id, 0) == "late"
    assert cache.load_results(job_id, 0, mode="sample", actor_indices=[0]) == [None]


def test_a_learner_that_starts_again_after_the_close_counts_no_trajectory_twice(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_actors=3, num_evaluations=1, deadline_s=0.0)
    deliver(cache, job_id, 0)
    deliver(cache, job_id, 1)
    _collector(cache, made).close()
    deliver(cache, job_id, 0)
    deliver_episode(cache, job_id, 0)
    again = _collector(cache, made)
    assert len(again.trajectories()) == 2
    counts = again.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (3, 2, 0, 1)
    assert counts.duplicate == 1


def test_what_comes_between_deadline_and_close_is_late(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=3, deadline_s=0.0))
    collector.trajectories()
    deliver(cache, job_id, 1)
    counts = collector.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (3, 0, 1, 2)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [({"policy_version": 5}, "expected"), ({"round_index": 0, "policy_version": 1}, "expected")],
)
def test_a_trajectory_of_another_policy_is_refused(
    cache: TrajectoryCache, job_id: str, kwargs: dict[str, int], says: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=1))
    deliver(cache, job_id, 0, **kwargs)
    assert collector.trajectories() == ()
    assert collector.failures[0].startswith("refused:")
    assert says in collector.failures[0]


def test_damaged_bytes_are_refused_and_cost_only_their_actor(
    cache: TrajectoryCache, job_id: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2))
    cache.store_result(job_id, 0, mode="sample", actor_index=0, payload=b"not a trajectory")
    deliver(cache, job_id, 1)
    assert [t.actor_index for t in collector.trajectories()] == [1]
    assert collector.missing == (0,)


def test_reopening_waits_again_for_what_failed(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2))
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="sample", actor_index=1, attempt=0, reason="crashed")
    assert waited(collector).missing == (1,)
    collector.prepare_reopening()
    collector.reopen(plan(job_id, num_actors=2, attempt=1))
    deliver(cache, job_id, 1)
    assert waited(collector).missing == ()
    assert collector.close().used == 2


def test_evaluation_episodes_are_kept_apart_from_training(
    cache: TrajectoryCache, job_id: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=1, num_evaluations=3))
    for index in (2, 0):
        deliver_episode(cache, job_id, index)
    deliver(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="evaluate", actor_index=1, attempt=0, reason="crashed")
    assert len(collector.trajectories()) == 1
    assert [e.episode_return for e in collector.episodes()] == [0.0, 2.0]
    counts = collector.close()
    assert (counts.launched, counts.used, counts.lost) == (1, 1, 0)


def test_a_learner_that_starts_again_after_the_close_finds_the_same(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_evaluations=1, deadline_s=0.0)
    for index in (3, 0, 2):
        deliver(cache, job_id, index)
    deliver_episode(cache, job_id, 0)
    first = _collector(cache, made)
    assert waited(first).missing == (1,)
    counted = first.close()
    assert deliver(cache, job_id, 1) == "late"
    second = _collector(cache, made)
    assert [t.actor_index for t in second.trajectories()] == [0, 2, 3]
    assert second.missing == (1,)
    assert len(second.episodes()) == 1
    counts = second.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (4, 3, 1, 0)
    assert (counted.launched, counted.used, counted.late, counted.lost) == (4, 3, 0, 1)


def test_what_was_refused_can_be_sent_again_once_the_round_is_reopened(
    cache: TrajectoryCache, job_id: str
) -> None:
    made = plan(job_id, num_actors=2)
    collector = _collector(cache, made)
    cache.store_result(job_id, 0, mode="sample", actor_index=0, payload=b"damaged on its way")
    deliver(cache, job_id, 1)
    assert waited(collector).missing == (0,)
    collector.prepare_reopening()
    assert deliver(cache, job_id, 0) == "stored"
    assert deliver(cache, job_id, 1) == "duplicate"
    collector.reopen(plan(job_id, num_actors=2, attempt=1))
    assert waited(collector).missing == ()


def test_what_was_damaged_is_lost_not_late(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=2))
    cache.store_result(job_id, 0, mode="sample", actor_index=0, payload=b"\x00" * 64)
    deliver(cache, job_id, 1)
    collector.trajectories()
    counts = collector.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (2, 1, 0, 1)


def test_an_actor_nobody_launched_is_not_listened_to(cache: TrajectoryCache, job_id: str) -> None:
    collector = _collector(cache, plan(job_id, num_actors=1))
    deliver(cache, job_id, 7)
    deliver_episode(cache, job_id, 0)
    deliver(cache, job_id, 0)
    assert [t.actor_index for t in collector.trajectories()] == [0]
    assert collector.episodes() == ()
    counts = collector.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (1, 1, 0, 0)


def test_what_is_no_token_is_not_listened_to(
    cache: TrajectoryCache, cache_url: str, job_id: str
) -> None:
    collector = _collector(cache, plan(job_id, num_actors=1))
    with redis.Redis.from_url(cache_url) as somebody:
        somebody.rpush(keys.arrivals(job_id, 0), "sample:x", "\x00", "sample:0:1")
        somebody.hset(keys.claims(job_id, 0), "evaluate:one", "")
    deliver(cache, job_id, 0)
    assert [t.actor_index for t in collector.trajectories()] == [0]
    assert collector.close().used == 1


def test_an_episode_of_another_policy_is_refused(cache: TrajectoryCache, job_id: str) -> None:
    made = plan(job_id, num_actors=1, num_evaluations=2).model_copy(update={"policy_version": 1})
    deliver_episode(cache, job_id, 0)
    cache.announce_failure(job_id, 0, mode="evaluate", actor_index=1, attempt=0, reason="crashed")
    collector = _collector(cache, made)
    assert collector.episodes() == ()
    assert collector.all_episodes_answered


def test_a_request_to_stop_does_not_end_the_wait_for_episodes(
    cache: TrajectoryCache, cache_url: str, job_id: str
) -> None:
    stop, shutdown = threading.Event(), threading.Event()
    stop.set()
    made = plan(job_id, num_actors=1, num_evaluations=2)
    collector = _collector(cache, made, stop, shutdown)
    deliver_episode(cache, job_id, 0)

    def slow() -> None:
        with TrajectoryCache(cache_url) as actor:
            deliver_episode(actor, job_id, 1)

    thread = threading.Thread(target=slow)
    thread.start()
    assert len(collector.episodes()) == 2
    thread.join()
    shutdown.set()
    assert not _collector(
        cache, plan(f"{job_id}-2", num_evaluations=1), stop, shutdown
    ).all_episodes_answered
    assert (
        _collector(cache, plan(f"{job_id}-2", num_evaluations=1), stop, shutdown).episodes() == ()
    )


@pytest.mark.parametrize(("steps", "envs"), [(STEPS + 1, 1), (STEPS, STEPS)])
def test_a_trajectory_of_another_size_is_refused(
    cache: TrajectoryCache, job_id: str, steps: int, envs: int
) -> None:
    deliver(cache, job_id, 0)
    collector = RoundCollector(
        cache,
        plan(job_id, num_actors=1),
        ENVIRONMENT,
        steps_per_actor=steps,
        envs_per_actor=envs,
        should_leave=threading.Event().is_set,
        must_leave=threading.Event().is_set,
    )
    assert waited(collector).failures == (
        f"refused: (steps, environments) is ({STEPS}, 1), expected ({steps}, {envs})",
    )


def test_what_was_used_before_a_resume_counts_as_used_and_is_not_taken_in_again(
    cache: TrajectoryCache, job_id: str
) -> None:
    for index in (0, 1):
        deliver(cache, job_id, index)
    deliver_episode(cache, job_id, 0)
    made = plan(job_id, num_actors=3, num_evaluations=2)
    collector = _collector(cache, made, taken=(1,))
    assert [t.actor_index for t in collector.fresh()] == [0]
    assert collector.used == {0, 1}
    cache.announce_failure(job_id, 0, mode="sample", actor_index=2, attempt=0, reason="crashed")
    collector.look_again()
    # The episode of index 1 has nothing to do with the trajectory of actor 1.
    assert not collector.complete
    cache.announce_failure(job_id, 0, mode="evaluate", actor_index=1, attempt=0, reason="hung")
    collector.look_again()
    assert collector.complete
    assert collector.failures == ("crashed",)
    assert collector.close() == TrajectoryCounts(launched=3, used=2, late=0, duplicate=0, lost=1)


@pytest.mark.parametrize(
    ("taken", "late", "counts"),
    [
        ((3,), (), {"launched": 3, "used": 2, "late": 0, "lost": 1}),
        ((3, 4), (1,), {"launched": 4, "used": 3, "late": 1, "lost": 0}),
        ((1, 3, 4), (), {"launched": 4, "used": 4, "late": 0, "lost": 0}),
    ],
)
def test_a_round_planned_afresh_for_fewer_actors_accounts_for_those_used_before(
    cache: TrajectoryCache,
    job_id: str,
    taken: tuple[int, ...],
    late: tuple[int, ...],
    counts: dict[str, int],
) -> None:
    deliver(cache, job_id, 0)
    collector = _collector(cache, plan(job_id, num_actors=2), taken=taken)
    for index in late:
        deliver(cache, job_id, index)
    assert collector.close() == TrajectoryCounts(duplicate=0, **counts)


def test_what_an_earlier_larger_round_brings_late_is_not_more_than_was_launched(
    cache: TrajectoryCache, job_id: str
) -> None:
    cache.close_round(job_id, 0)
    for index in (2, 3, 4):
        assert deliver(cache, job_id, index) == "late"
    collector = _collector(cache, plan(job_id, num_actors=2), taken=(0,))
    assert collector.close() == TrajectoryCounts(launched=4, used=1, late=3, duplicate=0, lost=0)
