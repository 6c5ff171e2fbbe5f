"""What only a table can get wrong: it is not there, an answer is lost, a scaler runs on it."""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError

from services.scaler.store.base import (
    Change,
    JobRecord,
    RoundEntry,
    StoreError,
    VersionConflictError,
)
from services.scaler.store.dynamodb import DynamoDbStore
from services.scaler.store.dynamodb_items import key_of, round_items
from tests.services.scaler.running import StartScaler, result
from tests.services.scaler.store.records import (
    REGION,
    make_table,
    plain_client,
    record,
    round_entry,
    with_status,
)


def delete_table(name: str) -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    client.delete_table(TableName=name)
    client.close()


def test_a_table_that_is_not_there_is_named_with_the_setting(aws: str) -> None:
    store = DynamoDbStore.connect("no-such-table", region=REGION)
    missing = "'no-such-table': .*NITRO_TABLE"
    with pytest.raises(StoreError, match=missing):
        store.check()
    with pytest.raises(StoreError, match=missing):
        store.create(record(), None)
    with pytest.raises(StoreError, match=missing):
        store.commit(Change(record=record()))
    store.close()


def test_a_service_that_cannot_be_reached_is_reported(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = DynamoDbStore.connect("nitro", region=REGION)
    with pytest.raises(StoreError, match="'nitro': Could not connect"):
        store.job("job")
    store.close()


def test_a_change_that_no_transaction_can_hold_is_refused_whole(aws: str) -> None:
    store = DynamoDbStore.connect(make_table(), region=REGION)
    store.create(record(), None)
    rounds = tuple(round_entry(index) for index in range(60))
    with pytest.raises(StoreError, match="122 items .*100"):
        store.commit(Change(record=record(), rounds=rounds))
    assert store.last_round("job") is None
    assert store.job("job") == record()
    store.close()


def store_whose_calls_break(table: str, operation: str, *, call: int) -> DynamoDbStore:
    """Return a store whose n-th call of an operation, counted from 0, never reaches the table."""
    client = plain_client()
    calls = itertools.count()

    def breaking(**_: object) -> None:
        if next(calls) == call:
            raise ConnectionClosedError(endpoint_url="dynamodb")

    client.meta.events.register(f"before-call.dynamodb.{operation}", breaking)
    return DynamoDbStore(table, client)


def large_round(index: int) -> RoundEntry:
    """Return a round that takes three parts, and has a ratio."""
    returns = (22.0,) * 40_000
    return round_entry(index, float(index)).model_copy(
        update={"result": result(index, episode_returns=returns)}
    )


def with_large_rounds(table: str, number: int) -> tuple[JobRecord, list[RoundEntry]]:
    """Add a job with rounds of several parts."""
    rounds = [large_round(index) for index in range(number)]
    store = DynamoDbStore.connect(table, region=REGION)
    store.create(record(), None)
    kept = record()
    for start in range(0, number, 6):
        kept = store.commit(Change(record=kept, rounds=tuple(rounds[start : start + 6])))
    store.close()
    return kept, rounds


@pytest.mark.parametrize("call", [0, 1, 2])
def test_forgetting_rounds_leaves_whole_ones_wherever_it_is_interrupted(
    aws: str, call: int
) -> None:
    table = make_table()
    kept, rounds = with_large_rounds(table, 54)  # 216 items: two transactions ahead of the change
    anew = Change(record=kept, rounds=(round_entry(3),), forget_rounds_from=3)
    breaking = store_whose_calls_break(table, "TransactWriteItems", call=call)
    with pytest.raises(StoreError, match="Connection was closed"):
        breaking.commit(anew)
    left = breaking.rounds("job", first=0, limit=99)
    assert left == rounds[: len(left)]
    assert (len(left) < len(rounds)) == (call > 0)
    assert breaking.last_round("job") == left[-1]
    assert breaking.ratios("job", before=99, limit=99) == [entry.ratio for entry in left]
    breaking.commit(anew)
    assert breaking.rounds("job", first=0, limit=99) == [*rounds[:3], round_entry(3)]
    breaking.close()


def test_a_deletion_that_was_interrupted_in_a_round_leaves_what_a_repeat_removes(
    aws: str,
) -> None:
    table = make_table()
    kept, rounds = with_large_rounds(table, 12)
    breaking = store_whose_calls_break(table, "BatchWriteItem", call=1)
    with pytest.raises(StoreError, match="Connection was closed"):
        breaking.delete(kept)
    # 12 ratios and 13 of 36 parts are gone.
    assert breaking.rounds("job", first=0, limit=99) == rounds[5:]
    assert breaking.round("job", 4) is None
    assert breaking.last_round("job") == rounds[-1]
    breaking.delete(kept)
    assert (breaking.job("job"), breaking.last_round("job")) == (None, None)
    breaking.close()


def test_a_job_that_changes_while_its_rounds_are_deleted_keeps_its_record(aws: str) -> None:
    """What nobody may do to a marked job; the record goes last, and only as it was read."""
    table = make_table()
    store = DynamoDbStore.connect(table, region=REGION)
    store.create(record(), None)
    old = store.commit(Change(record=record(), rounds=(round_entry(0),)))
    client = plain_client()

    def resume(**_: object) -> None:
        store.commit(with_status(old, "running"))

    client.meta.events.register("before-call.dynamodb.BatchWriteItem", resume)
    deleting = DynamoDbStore(table, client)
    with pytest.raises(VersionConflictError):
        deleting.delete(old)
    changed = store.job("job")
    assert changed is not None
    assert changed.job.status == "running"
    assert [entry.job.job_id for entry in store.with_status(("running",))] == ["job"]
    deleting.close()
    store.close()


def test_the_newest_round_is_the_newest_that_is_whole(aws: str) -> None:
    table = make_table()
    _, rounds = with_large_rounds(table, 2)
    client = plain_client()
    (first, *_) = round_items("job", rounds[1])
    client.delete_item(TableName=table, Key=key_of(first))
    client.close()
    store = DynamoDbStore.connect(table, region=REGION)
    assert store.last_round("job") == rounds[0]
    assert store.rounds("job", first=0, limit=9) == [rounds[0]]
    store.close()


class _Deaf(ThreadingHTTPServer):
    """Takes requests; does not live to answer the first one."""

    bodies: list[bytes]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # noqa: N802 - the name that http.server looks for
        assert isinstance(self.server, _Deaf)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        if len(self.server.bodies) > 1:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


@contextmanager
def deaf_server() -> Iterator[_Deaf]:
    server = _Deaf(("127.0.0.1", 0), _Handler)
    server.bodies = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_write_whose_answer_was_lost_is_sent_again_as_the_same_write(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB does a transaction once per token, so the second sending changes nothing."""
    with deaf_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        store = DynamoDbStore.connect("nitro", region=REGION)
        assert store.commit(Change(record=record())).version == 1
        store.close()
        first, second = (json.loads(body) for body in server.bodies)
    assert first["ClientRequestToken"]
    assert first == second


def test_a_job_is_trained_on_a_table_across_a_restart(
    aws: str, start_scaler: StartScaler, tmp_path: Path
) -> None:
    table = make_table()
    with start_scaler(store="dynamodb", table=table) as scaler:
        job = scaler.submit(env_id="Hopper-v5", actors={"min": 2, "max": 2}, stop={"max_rounds": 1})
        lease = scaler.lease()
        plan = scaler.round(lease, 0)
        scaler.landed(job.job_id)
    with start_scaler(store="dynamodb", table=table) as scaler:
        again = scaler.round(lease, 0)
        assert again.model_copy(update={"age_s": plan.age_s}) == plan
        assert len(scaler.lambdas.rollouts()) == plan.num_actors
        scaler.round(lease, 1, previous=result(0))
        assert scaler.finish(lease).status == "succeeded"
        assert scaler.cost(job.job_id).settled_usd == scaler.job(job.job_id).spent_usd > 0
        page = scaler.rounds(job.job_id)
        assert [one.plan.round for one in (*page.rounds, *page.endings)] == [0, 1]
        assert scaler.http.delete(f"/v1/jobs/{job.job_id}").status_code == 204
        assert scaler.http.get("/v1/jobs").json()["jobs"] == []
    assert not (tmp_path / "nitro.sqlite3").exists()


def test_a_scaler_without_its_table_does_not_start_and_says_so_when_it_goes(
    aws: str, start_scaler: StartScaler
) -> None:
    with (
        pytest.raises(StoreError, match="'gone': .*NITRO_TABLE"),
        start_scaler(store="dynamodb", table="gone"),
    ):
        pass
    table = make_table()
    with start_scaler(store="dynamodb", table=table) as scaler:
        assert scaler.http.get("/readyz").status_code == 200
        delete_table(table)
        response = scaler.http.get("/readyz")
        assert response.status_code == 503
        assert table in response.text
        assert scaler.http.get("/v1/jobs").status_code == 503


def test_a_transaction_sent_twice_is_made_once(aws: str) -> None:
    """As the service promises; the tests' own must, or a time-out would make a change twice."""
    table = make_table()
    client = boto3.client("dynamodb", region_name=REGION)
    key = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    add: Any = {
        "Update": {
            "TableName": table,
            "Key": key,
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    for token in ("first", "first", "second"):
        client.transact_write_items(TransactItems=[add], ClientRequestToken=token)
    assert client.get_item(TableName=table, Key=key)["Item"]["n"] == {"N": "2"}
