"""Collecting from a real cache server: nothing twice, nothing stale, nothing unaccounted for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import redis

from services.learner.rounds.collector import RoundCollector
from shared.cache import keys
from shared.cache.arrivals import Arrival, FailureKind, Mode
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheUnreachableError
from shared.contracts.rounds import RoundPlan, TrajectoryCounts
from tests.services.learner.made_rounds import (
    ENVIRONMENT,
    STEPS,
    deliver,
    deliver_episode,
    plan,
)

_JOBS = count()


class Round:
    """Round 0 of a job of its own, as its actors and its learner see it."""

    def __init__(self, cache: TrajectoryCache, job_id: str) -> None:
        self.cache, self.job_id = cache, job_id
        cache.publish_policy(job_id, 0, b"policy")

    def plan(self, **changes: Any) -> RoundPlan:
        return plan(self.job_id, **changes)

    def deliver(self, index: int, **changes: Any) -> str:
        return deliver(self.cache, self.job_id, index, **changes)

    def deliver_damaged(self, index: int) -> None:
        payload = b"not a trajectory"
        self.cache.store_result(self.job_id, 0, mode="sample", actor_index=index, payload=payload)

    def deliver_episode(self, index: int) -> None:
        deliver_episode(self.cache, self.job_id, index)

    def fail(
        self,
        index: int,
        reason: str = "crashed",
        *,
        mode: Mode = "sample",
        attempt: int = 0,
        kind: FailureKind = "lost",
    ) -> None:
        self.cache.announce_failure(
            self.job_id,
            0,
            mode=mode,
            actor_index=index,
            attempt=attempt,
            reason=reason,
            kind=kind,
        )

    def blame(self, *indices: int, kind: FailureKind) -> None:
        for index in indices:
            self.fail(index, f"{kind} {index}", kind=kind)

    def collector(
        self,
        made: RoundPlan,
        leave: threading.Event | None = None,
        must_leave: threading.Event | None = None,
        *,
        steps: int = STEPS,
        envs: int = 1,
        **changes: Any,
    ) -> RoundCollector:
        return RoundCollector(
            self.cache,
            made,
            ENVIRONMENT,
            steps_per_actor=steps,
            envs_per_actor=envs,
            should_leave=(leave or threading.Event()).is_set,
            must_leave=(must_leave or threading.Event()).is_set,
            **changes,
        )


@pytest.fixture
def opened(cache_url: str) -> Iterator[Round]:
    with TrajectoryCache(cache_url) as client:
        yield Round(client, f"collector-{next(_JOBS)}")


@pytest.fixture
def followed(cache_url: str) -> Iterator[Round]:
    """A round whose actor 1 delivers as soon as its failure has been told."""
    with _Follows(cache_url) as client:
        yield Round(client, f"collector-{next(_JOBS)}")


@contextmanager
def meanwhile(cache_url: str, act: Callable[[TrajectoryCache], object]) -> Iterator[None]:
    """Let an actor act in a thread and over a connection of its own."""

    def work() -> None:
        with TrajectoryCache(cache_url) as actor:
            act(actor)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def waited(collector: RoundCollector) -> RoundCollector:
    """Wait for the trajectories; return the collector."""
    collector.trajectories()
    return collector


def counted(collector: RoundCollector) -> tuple[int, int, int, int]:
    """Close the round; return how many were launched, used, late and lost."""
    counts = collector.close()
    return counts.launched, counts.used, counts.late, counts.lost


class _Follows(TrajectoryCache):
    """Delivers for actor 1 as soon as its failure has been told."""

    def wait_arrivals(
        self, job_id: str, round: int, *, timeout_s: float, limit: int = 256
    ) -> list[Arrival]:
        told = super().wait_arrivals(job_id, round, timeout_s=timeout_s, limit=limit)
        if any(arrival.failed is not None for arrival in told):
            deliver(self, job_id, 1)
        return told


def test_trajectories_come_in_the_order_of_their_index(opened: Round) -> None:
    collector = opened.collector(opened.plan())
    for index in (2, 0, 3, 1):
        opened.deliver(index)
    assert [t.actor_index for t in collector.trajectories()] == [0, 1, 2, 3]
    assert collector.missing == ()


def test_episodes_that_came_while_nobody_looked_are_read_after_the_deadline(opened: Round) -> None:
    made = opened.plan(num_actors=1, num_evaluations=2, deadline_s=0.0)
    opened.deliver(0)
    opened.deliver_episode(0)
    collector = opened.collector(made)
    assert waited(collector).missing == ()
    opened.deliver_episode(1)  # during the update
    assert [episode.episode_return for episode in collector.episodes()] == [0.0, 1.0]


def test_what_comes_after_the_update_is_late_and_not_used(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=2, num_evaluations=1))
    opened.deliver(0)
    opened.fail(1)
    assert len(collector.trajectories()) == 1
    opened.deliver(1)  # given up, and yet
    opened.deliver_episode(0)
    assert len(collector.episodes()) == 1
    assert counted(collector) == (2, 1, 1, 0)


def test_what_came_without_a_word_is_found_after_a_silence(
    opened: Round, cache_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.learner.rounds.collector._LONGEST_WAIT_S", 0.01)
    collector = opened.collector(opened.plan(num_actors=1, deadline_s=5.0))
    opened.deliver(0)
    with redis.Redis.from_url(cache_url) as somebody:
        assert somebody.delete(keys.arrivals(opened.job_id, 0)) == 1
    assert waited(collector).missing == ()


def test_a_cache_that_was_started_anew_and_empty_is_noticed_within_a_silence(
    opened: Round, cache_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.learner.rounds.collector._LONGEST_WAIT_S", 0.01)
    collector = opened.collector(opened.plan(num_actors=1, deadline_s=5.0))
    opened.deliver(0)
    with redis.Redis.from_url(cache_url) as somebody:
        somebody.delete(*somebody.scan_iter(f"nitro:{{{opened.job_id}}}:*"))
    with pytest.raises(CacheUnreachableError, match="lost policy 0"):
        collector.trajectories()
    assert collector.remaining_s > 0.0


def test_it_waits_for_what_comes_later(opened: Round, cache_url: str) -> None:
    collector = opened.collector(opened.plan(num_actors=2))
    opened.deliver(0)
    with meanwhile(cache_url, lambda actor: deliver(actor, opened.job_id, 1)):
        assert len(collector.trajectories()) == 2


def test_results_gather_only_while_many_are_to_come(opened: Round, cache_url: str) -> None:
    paused: list[float] = []
    rest = threading.Thread(target=lambda: deliver_all(range(0, 30)))

    def deliver_all(indices: range) -> None:
        with TrajectoryCache(cache_url) as actor:
            for index in indices:
                deliver(actor, opened.job_id, index)

    def gather(seconds: float) -> None:
        paused.append(seconds)
        deliver_all(range(30, 200))
        rest.start()

    collector = opened.collector(opened.plan(num_actors=200), gather=gather)
    assert [t.actor_index for t in collector.trajectories()] == list(range(200))
    assert len(paused) == 1
    rest.join()


def test_a_failed_launch_is_not_waited_for(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=3, deadline_s=600.0))
    opened.deliver(0)
    opened.deliver(2)
    opened.fail(1, "throttled")
    assert waited(collector).missing == (1,)
    assert collector.failures == ("throttled",)
    assert counted(collector) == (3, 2, 0, 1)


def test_the_deadline_counts_from_when_the_round_was_first_planned(opened: Round) -> None:
    opened.deliver(1)
    collector = opened.collector(opened.plan(deadline_s=600.0, age_s=601.0))
    assert [t.actor_index for t in collector.trajectories()] == [1]
    assert collector.missing == (0, 2, 3)
    assert collector.failures == ("no answer",)


def test_a_request_to_leave_ends_the_wait(opened: Round) -> None:
    leave = threading.Event()
    leave.set()
    collector = opened.collector(opened.plan(deadline_s=600.0), leave)
    assert waited(collector).missing == (0, 1, 2, 3)


def test_a_learner_that_starts_again_finds_what_had_arrived(opened: Round) -> None:
    for index in range(4):
        opened.deliver(index)
    first = opened.collector(opened.plan()).trajectories()
    again = opened.collector(opened.plan()).trajectories()
    assert [t.actor_index for t in again] == [0, 1, 2, 3]
    assert (again[2].observation == first[2].observation).all()


def test_a_learner_that_starts_again_knows_who_failed(opened: Round) -> None:
    made = opened.plan(num_actors=2, deadline_s=600.0)
    first = opened.collector(made)
    opened.deliver(0)
    opened.fail(1)
    assert waited(first).missing == (1,)
    again = opened.collector(made)
    assert waited(again).failures == ("crashed",)
    assert again.close() == TrajectoryCounts(launched=2, used=1, late=0, duplicate=0, lost=1)


def test_a_learner_that_starts_again_knows_who_failed_in_which_attempt(opened: Round) -> None:
    made, reopened = (opened.plan(num_actors=2, deadline_s=600.0, attempt=n) for n in (0, 1))
    first = opened.collector(made)
    opened.deliver(0)
    opened.fail(1)
    assert waited(first).missing == (1,)
    first.prepare_reopening((1,))
    first.reopen(reopened, (1,))
    opened.fail(1, "again", attempt=1)
    assert waited(first).failures == ("again",)
    assert waited(opened.collector(reopened)).failures == ("again",)


def test_a_learner_that_starts_again_waits_for_who_was_launched_again(followed: Round) -> None:
    followed.deliver(0)
    followed.fail(1)
    made = followed.plan(num_actors=2, deadline_s=600.0, attempt=1)
    assert waited(followed.collector(made)).missing == ()


def test_a_failure_told_after_the_round_was_reopened_ends_no_wait(followed: Round) -> None:
    followed.deliver(0)
    followed.fail(1)
    # It takes in what is noted, and leaves the tokens where they are.
    collector = followed.collector(followed.plan(num_actors=2, deadline_s=0.0))
    assert waited(collector).failures == ("crashed",)
    collector.prepare_reopening((1,))
    collector.reopen(followed.plan(num_actors=2, deadline_s=600.0, attempt=1), (1,))
    assert waited(collector).missing == ()


def test_nobody_waits_for_the_rest_once_the_environment_fails_in_so_many_that_no_quorum_can_come(
    opened: Round,
) -> None:
    made = opened.plan(num_actors=8, deadline_s=600.0).model_copy(update={"quorum": 4})
    opened.blame(0, 1, 2, 3, 4, kind="environment")
    collector = opened.collector(made)
    assert waited(collector).missing == tuple(range(8))
    assert collector.doomed
    assert collector.blaming[0] == "environment 0"


def test_where_the_environment_hangs_in_several_the_rest_is_waited_for_nearly_as_long_again(
    opened: Round,
) -> None:
    opened.blame(0, 1, kind="hung")
    collector = opened.collector(opened.plan(num_actors=64, deadline_s=600.0))
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
    opened: Round,
    blaming: tuple[int, ...],
    kind: FailureKind,
    delivered: tuple[int, ...],
) -> None:
    made = opened.plan(num_actors=8, deadline_s=0.5).model_copy(update={"quorum": 4})
    opened.blame(*blaming, kind=kind)
    for index in delivered:
        opened.deliver(index)
    collector = opened.collector(made)
    collector.trajectories()
    assert not collector.doomed
    assert collector.remaining_s == 0.0


def test_an_episode_that_failed_is_not_waited_for_in_a_reopened_round(opened: Round) -> None:
    made = opened.plan(num_actors=1, deadline_s=600.0, attempt=1)
    made = made.model_copy(update={"num_evaluations": 1})
    opened.fail(0, "crashed", mode="evaluate")
    assert opened.collector(made).episodes() == ()


def test_a_duplicate_is_counted_and_used_once(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=2))
    outcomes = [opened.deliver(index) for index in (0, 0, 1, 0)]
    assert outcomes == ["stored", "duplicate", "stored", "duplicate"]
    assert len(collector.trajectories()) == 2
    counts = collector.close()
    assert (counts.used, counts.duplicate, counts.lost, counts.late) == (2, 2, 0, 0)


def test_what_comes_after_the_close_is_late_and_not_kept(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=2, deadline_s=0.0))
    collector.trajectories()
    assert counted(collector) == (2, 0, 0, 2)
    assert opened.deliver(0) == "late"
    assert opened.cache.load_results(opened.job_id, 0, mode="sample", actor_indices=[0]) == [None]


def test_a_learner_that_starts_again_after_the_close_counts_no_trajectory_twice(
    opened: Round,
) -> None:
    made = opened.plan(num_actors=3, num_evaluations=1, deadline_s=0.0)
    opened.deliver(0)
    opened.deliver(1)
    opened.collector(made).close()
    opened.deliver(0)
    opened.deliver_episode(0)
    again = opened.collector(made)
    assert len(again.trajectories()) == 2
    counts = again.close()
    assert (counts.launched, counts.used, counts.late, counts.lost) == (3, 2, 0, 1)
    assert counts.duplicate == 1


def test_what_comes_between_deadline_and_close_is_late(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=3, deadline_s=0.0))
    collector.trajectories()
    opened.deliver(1)
    assert counted(collector) == (3, 0, 1, 2)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [({"policy_version": 5}, "expected"), ({"round_index": 0, "policy_version": 1}, "expected")],
)
def test_a_trajectory_of_another_policy_is_refused(
    opened: Round, kwargs: dict[str, int], says: str
) -> None:
    collector = opened.collector(opened.plan(num_actors=1))
    opened.deliver(0, **kwargs)
    assert collector.trajectories() == ()
    assert collector.failures[0].startswith("refused:")
    assert says in collector.failures[0]


def test_damaged_bytes_are_refused_and_cost_only_their_actor(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=2))
    opened.deliver_damaged(0)
    opened.deliver(1)
    assert [t.actor_index for t in collector.trajectories()] == [1]
    assert collector.missing == (0,)
    assert counted(collector) == (2, 1, 0, 1)  # lost, not late


def test_reopening_waits_again_for_what_failed(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=2))
    opened.deliver(0)
    opened.fail(1)
    assert waited(collector).missing == (1,)
    collector.prepare_reopening((1,))
    collector.reopen(opened.plan(num_actors=2, attempt=1), (1,))
    opened.deliver(1)
    assert waited(collector).missing == ()
    assert collector.close().used == 2


def test_evaluation_episodes_are_kept_apart_from_training(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=1, num_evaluations=3))
    for index in (2, 0):
        opened.deliver_episode(index)
    opened.deliver(0)
    opened.fail(1, "crashed", mode="evaluate")
    assert len(collector.trajectories()) == 1
    assert [e.episode_return for e in collector.episodes()] == [0.0, 2.0]
    assert counted(collector) == (1, 1, 0, 0)


def test_a_learner_that_starts_again_after_the_close_finds_the_same(opened: Round) -> None:
    made = opened.plan(num_evaluations=1, deadline_s=0.0)
    for index in (3, 0, 2):
        opened.deliver(index)
    opened.deliver_episode(0)
    first = opened.collector(made)
    assert waited(first).missing == (1,)
    assert counted(first) == (4, 3, 0, 1)
    assert opened.deliver(1) == "late"
    second = opened.collector(made)
    assert [t.actor_index for t in second.trajectories()] == [0, 2, 3]
    assert second.missing == (1,)
    assert len(second.episodes()) == 1
    assert counted(second) == (4, 3, 1, 0)


def test_what_was_refused_can_be_sent_again_once_the_round_is_reopened(opened: Round) -> None:
    made = opened.plan(num_actors=2)
    collector = opened.collector(made)
    opened.deliver_damaged(0)
    opened.deliver(1)
    assert waited(collector).missing == (0,)
    collector.prepare_reopening((0,))
    assert opened.deliver(0) == "stored"
    assert opened.deliver(1) == "duplicate"
    collector.reopen(opened.plan(num_actors=2, attempt=1), (0,))
    assert waited(collector).missing == ()


@pytest.mark.parametrize("claims_left", [True, False])
@pytest.mark.parametrize("mode", ["sample", "evaluate"])
def test_a_result_that_the_cache_lost_has_vanished_and_can_be_sent_again(
    opened: Round, cache_url: str, mode: Mode, claims_left: bool
) -> None:
    made = opened.plan(num_actors=2, num_evaluations=1)
    collector = opened.collector(made)
    for index in (0, 1):
        opened.deliver(index)
    opened.deliver_episode(0)
    with redis.Redis.from_url(cache_url) as somebody:
        somebody.delete(keys.result(opened.job_id, 0, mode, 0))
        if not claims_left:
            somebody.delete(keys.claims(opened.job_id, 0))
    waited(collector)
    if mode == "sample":
        assert collector.vanished
        assert collector.missing == (0,)
    else:
        collector.episodes()
        assert collector.vanished_episodes == (0,)
    missing = collector.missing
    collector.prepare_reopening(missing)
    opened.deliver(0)
    opened.deliver_episode(0)
    collector.reopen(opened.plan(num_actors=2, num_evaluations=1, attempt=1), missing)
    assert waited(collector).missing == ()
    assert len(collector.episodes()) == 1


def test_an_actor_nobody_launched_is_not_listened_to(opened: Round) -> None:
    collector = opened.collector(opened.plan(num_actors=1))
    opened.deliver(7)
    opened.deliver_episode(0)
    opened.deliver(0)
    assert [t.actor_index for t in collector.trajectories()] == [0]
    assert collector.episodes() == ()
    assert counted(collector) == (1, 1, 0, 0)


def test_what_is_no_token_is_not_listened_to(opened: Round, cache_url: str) -> None:
    collector = opened.collector(opened.plan(num_actors=1))
    with redis.Redis.from_url(cache_url) as somebody:
        somebody.rpush(keys.arrivals(opened.job_id, 0), "sample:x", "\x00", "sample:0:1")
        somebody.hset(keys.claims(opened.job_id, 0), "evaluate:one", "")
    opened.deliver(0)
    assert [t.actor_index for t in collector.trajectories()] == [0]
    assert collector.close().used == 1


def test_an_episode_of_another_policy_is_refused(opened: Round) -> None:
    made = opened.plan(num_actors=1, num_evaluations=2).model_copy(update={"policy_version": 1})
    opened.deliver_episode(0)
    opened.fail(1, "crashed", mode="evaluate")
    collector = opened.collector(made)
    assert collector.episodes() == ()
    assert collector.all_episodes_answered


def test_a_request_to_stop_does_not_end_the_wait_for_episodes(
    opened: Round, cache_url: str
) -> None:
    stop, shutdown = threading.Event(), threading.Event()
    stop.set()
    made = opened.plan(num_actors=1, num_evaluations=2)
    collector = opened.collector(made, stop, shutdown)
    opened.deliver_episode(0)
    with meanwhile(cache_url, lambda actor: deliver_episode(actor, opened.job_id, 1)):
        assert len(collector.episodes()) == 2
    shutdown.set()
    again = opened.collector(plan(f"{opened.job_id}-2", num_evaluations=1), stop, shutdown)
    assert not again.all_episodes_answered
    assert again.episodes() == ()


@pytest.mark.parametrize(("steps", "envs"), [(STEPS + 1, 1), (STEPS, STEPS)])
def test_a_trajectory_of_another_size_is_refused(opened: Round, steps: int, envs: int) -> None:
    opened.deliver(0)
    collector = opened.collector(opened.plan(num_actors=1), steps=steps, envs=envs)
    assert waited(collector).failures == (
        f"refused: (steps, environments) is ({STEPS}, 1), expected ({steps}, {envs})",
    )


def test_what_was_used_before_a_resume_counts_as_used_and_is_not_taken_in_again(
    opened: Round,
) -> None:
    for index in (0, 1):
        opened.deliver(index)
    opened.deliver_episode(0)
    made = opened.plan(num_actors=3, num_evaluations=2)
    collector = opened.collector(made, taken=(1,))
    assert [t.actor_index for t in collector.fresh()] == [0]
    assert collector.used == {0, 1}
    opened.fail(2)
    collector.look_again()
    # The episode of index 1 has nothing to do with the trajectory of actor 1.
    assert not collector.complete
    opened.fail(1, "hung", mode="evaluate")
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
    opened: Round,
    taken: tuple[int, ...],
    late: tuple[int, ...],
    counts: dict[str, int],
) -> None:
    opened.deliver(0)
    collector = opened.collector(opened.plan(num_actors=2), taken=taken)
    for index in late:
        opened.deliver(index)
    assert collector.close() == TrajectoryCounts(duplicate=0, **counts)


def test_what_an_earlier_larger_round_brings_late_is_not_more_than_was_launched(
    opened: Round,
) -> None:
    opened.cache.close_round(opened.job_id, 0)
    for index in (2, 3, 4):
        assert opened.deliver(index) == "late"
    collector = opened.collector(opened.plan(num_actors=2), taken=(0,))
    assert collector.close() == TrajectoryCounts(launched=4, used=1, late=3, duplicate=0, lost=0)
