"""A table in DynamoDB: strongly consistent reads, all-or-nothing writes.

Every write is a transaction, even of a single item, because a transaction has a token: the SDK may
resend it after a lost answer. A plain conditional write would fail against its own first copy.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.book.table import (
    ALL,
    ConflictError,
    Expected,
    Item,
    Key,
    Range,
    StoreError,
    require_room,
)
from services.scaler.off_loop import OffLoop

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_CONNECT_TIMEOUT_S = 2.0
_READ_TIMEOUT_S = 3.0
_TRIES = 4
_THREADS = 3
"""Threads that change jobs: a call takes some 8 ms, so they make 300 calls a second."""
_CONNECTIONS = 10
"""Connections: one for each of them, and for the threads that read pages for people."""
T = TypeVar("T")


class DynamoDbTable:
    """A `Table` on an existing DynamoDB table with the keys `pk` and `sk`. Thread-safe."""

    def __init__(self, name: str, client: "DynamoDBClient") -> None:
        """Use a client that takes plain values for attributes: a resource's."""
        self._name = name
        self._client = client
        self._threads = OffLoop("table", _THREADS)

    @classmethod
    def connect(cls, name: str, *, region: str) -> Self:
        """Return a table; nothing is sent yet."""
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
        )
        # The client of a resource writes and reads plain values.
        resource = boto3.resource("dynamodb", region_name=region, config=config)
        return cls(name, resource.meta.client)

    def get(self, key: Key) -> Item | None:
        """Return an item."""
        with self._errors():
            reply = self._client.get_item(
                TableName=self._name, Key=_attributes(key), ConsistentRead=True
            )
        found = reply.get("Item")
        return None if found is None else _item(found)

    def query(self, partition: str, wanted: Range = ALL) -> Iterator[Item]:
        """Yield items of a partition."""
        pages: Any = self._client.get_paginator("query")
        with self._errors():
            for reply in pages.paginate(
                TableName=self._name,
                PaginationConfig={"PageSize": wanted.page},
                # As text: boto3 builds `Key` conditions with a counter that all threads share.
                KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
                ExpressionAttributeValues={
                    ":pk": partition,
                    ":first": wanted.first or " ",
                    ":last": wanted.last,
                },
                ConsistentRead=True,
                ScanIndexForward=not wanted.newest_first,
            ):
                yield from map(_item, reply["Items"])

    def write(self, puts: Sequence[Item], deletes: Sequence[Key] = (), *, expect: Expected) -> None:
        """Write and delete items: all or none."""
        require_room(puts, deletes, expect)
        actions = [{"Put": {"Item": _put(item), **_condition(item.key, expect)}} for item in puts]
        actions += [
            {"Delete": {"Key": _attributes(key), **_condition(key, expect)}} for key in deletes
        ]
        untouched = set(expect).difference(deletes, (item.key for item in puts))
        actions += [
            {"ConditionCheck": {"Key": _attributes(key), **_condition(key, expect)}}
            for key in untouched
        ]
        request: Any = [
            {kind: {"TableName": self._name, **what}}
            for action in actions
            for kind, what in action.items()
        ]
        with self._errors():
            try:
                self._client.transact_write_items(TransactItems=request)
            except self._client.exceptions.TransactionCanceledException as error:
                reasons = error.response.get("CancellationReasons", [])
                # `TransactionConflict` is different: an earlier write of ours may still be running.
                if any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                    raise ConflictError(f"DynamoDB table {self._name!r}: {error}") from error
                raise

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call on a thread, to its end."""
        return await self._threads.run_to_its_end(call)

    def close(self) -> None:
        """Close the connections."""
        self._threads.close()
        self._client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StoreError(
                f"cannot use DynamoDB table {self._name!r}: {error}; check that NITRO_TABLE and "
                "NITRO_LAMBDA_REGION name a table with keys pk and sk, and that this process's "
                "role may use it"
            ) from error


def _attributes(key: Key) -> dict[str, Any]:
    return {"pk": key[0], "sk": key[1]}


def _put(item: Item) -> dict[str, Any]:
    return {**_attributes(item.key), "version": item.version, "body": item.body}


def _item(found: Any) -> Item:
    return Item((found["pk"], found["sk"]), found["body"], int(found["version"]))


def _condition(key: Key, expect: Expected) -> dict[str, Any]:
    if key not in expect:
        return {}
    if expect[key] is None:
        return {"ConditionExpression": "attribute_not_exists(pk)"}
    return {
        "ConditionExpression": "version = :expected",
        "ExpressionAttributeValues": {":expected": expect[key]},
    }
