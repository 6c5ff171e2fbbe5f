"""One DynamoDB table as the store uses it: strongly consistent reads, all-or-nothing writes.

Every write that changes a job is a transaction, also when it is a single item: a transaction
carries a token, so that the SDK may send it again when the answer was lost. A plain conditional
write sent twice would fail on its own first copy, and the change would be decided and made again.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.store.base import StoreError, VersionConflictError
from services.scaler.store.dynamodb_items import COUNTER_KEY, INDEX, Item, key_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_TRANSACTION_ITEMS = 100
LAST = "~"
"""Greater than any letter and digit, for the end of a range of names."""
_BATCH_READ = 100
_BATCH_WRITE = 25
_MAX_BATCH_TRIES = 8
_FIRST_PAUSE_S = 0.05
_CONFLICTS = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


class DynamoDbTable:
    """Reads and writes items. Thread-safe."""

    def __init__(self, name: str, client: "DynamoDBClient") -> None:
        """Use a client that takes plain values for attributes: a resource's."""
        self._name = name
        self._client = client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, key: Item, *, attributes: str | None = None) -> Item | None:
        """Return an item, or the comma-separated attributes of it; None if there is none."""
        projection: Any = {} if attributes is None else {"ProjectionExpression": attributes}
        with self._errors():
            reply = self._client.get_item(
                TableName=self._name, Key=key, ConsistentRead=True, **projection
            )
        return reply.get("Item")

    def get_many(self, keys: Sequence[Item]) -> list[Item]:
        """Return the items there are, in any order."""
        found: list[Item] = []

        def read(batch: list[Item]) -> list[Item]:
            request: Any = {self._name: {"Keys": batch, "ConsistentRead": True}}
            reply = self._client.batch_get_item(RequestItems=request)
            found.extend(reply["Responses"].get(self._name, []))
            return list(reply["UnprocessedKeys"].get(self._name, {"Keys": []})["Keys"])

        self._in_batches(keys, _BATCH_READ, read, "reads")
        return found

    def query(
        self,
        pk: str,
        prefix: str = "",
        *,
        first: str | None = None,
        newest_first: bool = False,
        page: int | None = None,
        keys_only: bool = False,
    ) -> Iterator[Item]:
        """Return a partition's items whose sort keys have a prefix, page by page as needed.

        Only those from `first` on, if it is given.
        """
        projection: Any = {"ProjectionExpression": "pk, sk"} if keys_only else {}
        pages = self._pages(
            page,
            # As text: boto3 builds `Key` conditions with a counter that all threads share.
            KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":pk": pk,
                ":first": first or prefix or " ",
                ":last": prefix + LAST,
            },
            ConsistentRead=True,
            ScanIndexForward=not newest_first,
            **projection,
        )
        return (item for reply in pages for item in reply["Items"])

    def listed(self, gsi_pk: str, *, below: str, page: int | None = None) -> Iterator[Item]:
        """Return an index partition's entries with sort keys below one, newest first."""
        pages = self._pages(page, **_in_index(gsi_pk, below))
        return (item for reply in pages for item in reply["Items"])

    def num_listed(self, gsi_pk: str, *, below: str) -> int:
        """Return how many entries an index partition has."""
        pages = self._pages(None, **_in_index(gsi_pk, below), Select="COUNT")
        return sum(reply["Count"] for reply in pages)

    def check(self) -> None:
        """Raise `StoreError` unless the table and its index can be read."""
        next(self.listed("queued", below=LAST, page=1), None)

    def next_number(self) -> int:
        """Return a number greater than any before; some may be left out."""
        with self._errors():
            reply = self._client.update_item(
                TableName=self._name,
                Key=COUNTER_KEY,
                UpdateExpression="ADD newest :one",
                ExpressionAttributeValues={":one": 1},
                ReturnValues="UPDATED_NEW",
            )
        number: Any = reply["Attributes"]["newest"]
        return int(number)

    def transact(self, actions: Sequence[Item]) -> None:
        """Do all of the actions or none.

        Raises:
            VersionConflictError: A condition does not hold, or somebody else writes the same items.
            StoreError: There are more actions than a transaction can have, or it is refused.
        """
        if len(actions) > MAX_TRANSACTION_ITEMS:
            raise StoreError(
                f"a change of {len(actions)} items does not fit into one transaction of "
                f"{MAX_TRANSACTION_ITEMS} in DynamoDB table {self._name!r}: make it in steps"
            )
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
                codes = {reason.get("Code", "None") for reason in reasons} - {"None"}
                if codes and codes <= _CONFLICTS:
                    raise VersionConflictError(
                        f"DynamoDB table {self._name!r}: {', '.join(sorted(codes))}"
                    ) from error
                raise

    def delete_many(self, keys: Iterable[Item]) -> None:
        """Delete items, each for itself."""

        def write(batch: list[Item]) -> list[Item]:
            request: Any = {self._name: batch}
            reply = self._client.batch_write_item(RequestItems=request)
            rest: Any = reply["UnprocessedItems"].get(self._name, [])
            return list(rest)

        deletions = [{"DeleteRequest": {"Key": key_of(item)}} for item in keys]
        self._in_batches(deletions, _BATCH_WRITE, write, "writes")

    def _in_batches(
        self,
        items: Sequence[Item],
        size: int,
        send: Callable[[list[Item]], list[Item]],
        what: str,
    ) -> None:
        """Send items in batches; of each batch, what is left over is sent again after a pause."""
        for start in range(0, len(items), size):
            batch = list(items[start : start + size])
            for attempt in range(_MAX_BATCH_TRIES):
                with self._errors():
                    batch = send(batch)
                if not batch:
                    break
                time.sleep(random.uniform(0, _FIRST_PAUSE_S * 2**attempt))
            else:
                raise self._unusable(f"{what} are throttled")

    def _pages(self, size: int | None, **request: Any) -> Iterator[Any]:
        query: Any = self._client.get_paginator("query")
        with self._errors():
            yield from query.paginate(
                TableName=self._name, PaginationConfig={"PageSize": size}, **request
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise self._unusable(error) from error

    def _unusable(self, why: object) -> StoreError:
        return StoreError(
            f"cannot use DynamoDB table {self._name!r}: {why}; check that NITRO_TABLE and "
            f"NITRO_LAMBDA_REGION name a table with keys pk and sk and the index {INDEX!r} with "
            "gsi_pk and gsi_sk, and that this process's role may use both"
        )


def _in_index(gsi_pk: str, below: str) -> dict[str, Any]:
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": "gsi_pk = :pk AND gsi_sk < :below",
        "ExpressionAttributeValues": {":pk": gsi_pk, ":below": below},
        "ScanIndexForward": False,
    }
