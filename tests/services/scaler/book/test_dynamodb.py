"""What only a table can get wrong: it is not there, an answer is lost, a scaler runs on it."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.table import Item, StoreError
from tests.services.scaler.book.records import REGION, make_table, plain_client
from tests.services.scaler.running import StartScaler, result

_THREADS = 16
_EACH = 300


def delete_table(name: str) -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    client.delete_table(TableName=name)
    client.close()


def test_a_table_that_is_not_there_is_named_with_the_setting(aws: str) -> None:
    table = DynamoDbTable.connect("no-such-table", region=REGION)
    item = Item(("a", "b"), "body")
    for use in (
        lambda: table.get(item.key),
        lambda: list(table.query("a")),
        lambda: table.write([item], expect={}),
    ):
        with pytest.raises(StoreError, match="'no-such-table': .*NITRO_TABLE"):
            use()
    table.close()


def test_a_service_that_cannot_be_reached_is_reported(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    table = DynamoDbTable.connect("nitro", region=REGION)
    with pytest.raises(StoreError, match="'nitro': Could not connect"):
        table.get(("a", "b"))
    table.close()


def test_a_write_that_runs_into_one_of_our_own_under_way_is_no_conflict(aws: str) -> None:
    """After a time-out the first of two writes may still run: nobody else needs to be there."""
    client = plain_client()
    error: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": "busy"},
        "CancellationReasons": [{"Code": "None"}, {"Code": "TransactionConflict"}],
    }

    def cancelled(**_: object) -> None:
        raise client.exceptions.TransactionCanceledException(error, "TransactWriteItems")

    client.meta.events.register("before-call.dynamodb.TransactWriteItems", cancelled)
    table = DynamoDbTable("nitro", client)
    with pytest.raises(StoreError, match="busy"):
        table.write([Item(("a", "b"), "body")], expect={("a", "b"): 1})
    table.close()


def test_a_write_under_way_is_waited_for_also_by_whoever_is_cancelled(aws: str) -> None:
    """A lock that is held for it would else be free while nobody knows whether it counts."""
    table = DynamoDbTable("nitro", plain_client())
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        go_on.wait()
        ended.set()

    async def scenario() -> None:
        waiting = asyncio.create_task(table.run(write))
        await asyncio.to_thread(begun.wait)
        for _ in range(3):
            waiting.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended.is_set()

    asyncio.run(scenario())
    table.close()


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
        table = DynamoDbTable.connect("nitro", region=REGION)
        table.write([Item(("a", "b"), "body", 1)], expect={("a", "b"): 0})
        table.close()
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


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads give way to each other at nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_query_at_once_ask_for_their_own_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    table = DynamoDbTable.connect("table", region="us-east-1")
    partitions: list[str] = []

    def answer(params: dict[str, Any], **_: object) -> tuple[object, dict[str, Any]]:
        body = json.loads(params["body"])
        names = body.get("ExpressionAttributeNames", {})
        condition = body["KeyConditionExpression"]
        for short, name in names.items():
            condition = condition.replace(short, name)
        _, equal, value, *_ = condition.split()
        assert equal == "="
        partitions.append(body["ExpressionAttributeValues"][value]["S"])
        return SimpleNamespace(status_code=200), {"Items": [], "Count": 0, "ResponseMetadata": {}}

    table._client.meta.events.register("before-call.dynamodb", answer)  # type: ignore[arg-type] # hooks may answer

    def query(number: int) -> None:
        for _ in range(_EACH):
            assert list(table.query(f"job{number}")) == []

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(query, range(_THREADS)))
    assert len(set(partitions)) == _THREADS
    assert {partitions.count(partition) for partition in partitions} == {_EACH}
