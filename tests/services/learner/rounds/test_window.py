"""Open rounds against a real cache: what was used before counts on, and no arrival is missed."""

from collections.abc import Iterator, Sequence
from itertools import count
from types import SimpleNamespace

import pytest
import redis

from services.learner.record.checkpoint import OpenRound
from services.learner.rounds.window import RoundWindow, opened_round
from shared.cache import keys
from shared.cache.arrivals import Arrival
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheUnreachableError
from tests.services.learner.made_rounds import STEPS, deliver, plan
from tests.services.learner.scripted_scaler import job

_JOBS = count()


class _Asked(TrajectoryCache):
    """Notes how long it is asked to wait, and waits for nothing."""

    waits: list[float]

    def wait_any_arrivals(
        self, job_id: str, rounds: Sequence[int], *, timeout_s: float, limit: int = 256
    ) -> tuple[int, list[Arrival]] | None:
        self.waits.append(timeout_s)
        return super().wait_any_arrivals(job_id, rounds, timeout_s=0.0, limit=limit)


@pytest.fixture
def cache(cache_url: str) -> Iterator[_Asked]:
    with _Asked(cache_url) as client:
        client.waits = []
        yield client


@pytest.fixture
def job_id() -> str:
    return f"window-{next(_JOBS)}"


def _nothing(round_index: int) -> OpenRound:
    return OpenRound(
        round=round_index, policy_version=round_index, taken=(), env_steps=0, episode_returns=()
    )


def _window(cache: TrajectoryCache, job_id: str, *before: OpenRound) -> RoundWindow:
    window = RoundWindow(cache, job_id)
    for opened in before:
        cache.publish_policy(job_id, opened.policy_version, b"policy")
        made = plan(job_id, round_index=opened.round)
        made = made.model_copy(update={"policy_version": opened.policy_version})
        window.add(
            opened_round(
                cache,
                job(job_id),
                made,
                opened,
                should_leave=lambda: False,
                must_leave=lambda: False,
            )
        )
    return window


def test_what_a_round_brought_before_and_since_is_told_together(cache: _Asked, job_id: str) -> None:
    before = OpenRound(
        round=3,
        policy_version=7,
        taken=(1,),
        env_steps=STEPS,
        episode_returns=(1.0,),
        dropped_episodes=2,
    )
    for index in (1, 2, 0):
        deliver(
            cache, job_id, index, round_index=3, policy_version=7, dropped_episodes=10 * (index + 1)
        )
    window = _window(cache, job_id, before)
    arrived = window.arrivals(timeout_s=0.0)
    assert [t.actor_index for t in arrived] == [0, 2]
    assert window.oldest.state == OpenRound(
        round=3,
        policy_version=7,
        taken=(0, 1, 2),
        env_steps=3 * STEPS,
        episode_returns=(1.0, 0.0, 2.0),
        dropped_episodes=2 + 10 + 30,
    )
    assert window.arrivals(timeout_s=0.0) == ()


def test_arrivals_go_to_their_own_round(cache: _Asked, job_id: str) -> None:
    window = _window(cache, job_id, _nothing(0), _nothing(1))
    deliver(cache, job_id, 2, round_index=1)
    deliver(cache, job_id, 3)
    arrived = [t for _ in range(2) for t in window.arrivals(timeout_s=0.0)]
    assert [(t.round, t.actor_index) for t in arrived] == [(0, 3), (1, 2)]
    assert [opened.state.taken for opened in window] == [(3,), (2,)]


def test_a_look_does_not_wait_and_no_wait_is_longer_than_a_silence(
    cache: _Asked, job_id: str
) -> None:
    window = _window(cache, job_id, _nothing(0))
    for timeout_s in (0.0, 0.25, 30.0):
        assert window.arrivals(timeout_s=timeout_s) == ()
    assert cache.waits == [0.0, 0.25, 1.0]


def test_what_came_without_a_word_is_found_after_a_silence(
    cache: _Asked, cache_url: str, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("services.learner.rounds.window.time", clock)
    window = _window(cache, job_id, _nothing(0), _nothing(1))
    for number in (0, 1):
        deliver(cache, job_id, 2, round_index=number)
        with redis.Redis.from_url(cache_url) as somebody:
            assert somebody.delete(keys.arrivals(job_id, number)) == 1
    now += 0.9
    assert window.arrivals(timeout_s=0.0) == ()
    now += 0.2
    assert [t.round for t in window.arrivals(timeout_s=0.0)] == [0, 1]
    cache.delete_policy(job_id, 1)  # as an emptied cache
    now += 1.1
    with pytest.raises(CacheUnreachableError, match="lost policy 1"):
        window.arrivals(timeout_s=0.0)
