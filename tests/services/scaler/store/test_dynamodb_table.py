"""What goes out to DynamoDB; nothing is sent."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from services.scaler.store.dynamodb import DynamoDbStore

_THREADS = 16
_EACH = 300


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
    store = DynamoDbStore.connect("table", region="us-east-1")
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

    store._table._client.meta.events.register("before-call.dynamodb", answer)  # type: ignore[arg-type] # hooks may answer

    def query(number: int) -> None:
        for _ in range(_EACH):
            assert store.rounds(f"job{number}", first=0, limit=3) == []

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(query, range(_THREADS)))
    assert len(set(partitions)) == _THREADS
    assert {partitions.count(partition) for partition in partitions} == {_EACH}
