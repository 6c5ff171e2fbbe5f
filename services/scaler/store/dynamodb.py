"""The store in one DynamoDB table, for a scaler on AWS: the same promises as the SQLite file.

`dynamodb_items` says how things lie in the table, `dynamodb_table` how it is spoken to.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, get_args

import boto3
from botocore.config import Config

from services.scaler.store import dynamodb_items as items
from services.scaler.store.base import (
    Change,
    IdempotencyEntry,
    JobRecord,
    RoundEntry,
    VersionConflictError,
)
from services.scaler.store.dynamodb_items import Item
from services.scaler.store.dynamodb_table import LAST, MAX_TRANSACTION_ITEMS, DynamoDbTable
from services.scaler.store.reading import JobReader, parsed
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import FINISHED, JobStatus
from shared.contracts.views.events import KEPT_EVENTS, JobEvent

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_CONNECT_TIMEOUT_S = 2.0
_READ_TIMEOUT_S = 3.0
_TRIES = 4
_CONNECTIONS = 50
"""As many as there are threads that answer requests, and some."""
_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)


class DynamoDbStore:
    """A `Store` in one table, made by whoever deploys. Thread-safe."""

    def __init__(self, table: str, client: "DynamoDBClient") -> None:
        self._table = DynamoDbTable(table, client)
        self._reader = JobReader()

    @classmethod
    def connect(cls, table: str, *, region: str) -> Self:
        """Return the store in a table; nothing is sent yet."""
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
        )
        # The client of a resource writes and reads plain values.
        resource = boto3.resource("dynamodb", region_name=region, config=config)
        return cls(table, resource.meta.client)

    def create(self, record: JobRecord, idempotency: IdempotencyEntry | None) -> None:
        """Add a job."""
        is_new = {"ConditionExpression": "attribute_not_exists(pk)"}
        job = items.job_item(record, self._table.next_number(), idempotency)
        actions = [_put(job, **is_new), _active_action(record)]
        if idempotency is not None:
            used = {
                **items.idempotency_key(idempotency.key),
                "body_digest": idempotency.body_digest,
                "job_id": idempotency.job_id,
            }
            actions.append(_put(used, **is_new))
        self._table.transact(actions)

    def idempotency(self, key: str) -> IdempotencyEntry | None:
        """Return what a key was used for."""
        item = self._table.get(items.idempotency_key(key))
        if item is None:
            return None
        return IdempotencyEntry(key=key, body_digest=item["body_digest"], job_id=item["job_id"])

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job."""
        item = self._table.get(items.job_key(job_id))
        return None if item is None else parsed(JobRecord, *items.document_of(item))

    def job_of_lease(self, lease_id: str) -> JobRecord | None:
        """Return the job a lease is on."""
        for entry in self._active():
            if entry.get("lease_id") == lease_id:
                record = self.job(entry["sk"])
                if record and record.lease and record.lease.lease_id == lease_id:
                    return record
        return None

    def jobs(
        self, *, status: JobStatus | None, limit: int, before: int | None
    ) -> list[tuple[int, JobRecord | None]]:
        """Return jobs, newest first; one changed just now may be missing or out of its state."""
        below = LAST if before is None else items.position_name(before)
        newest_first = heapq.merge(
            *(
                self._table.listed(one, below=below, page=limit)
                for one in (_STATUSES if status is None else (status,))
            ),
            key=items.position_of,
            reverse=True,
        )
        # While a job changes its state the index may show it twice.
        distinct = (next(same) for _, same in itertools.groupby(newest_first, items.position_of))
        keys = [items.key_of(entry) for entry in itertools.islice(distinct, limit)]
        found = [
            (items.position_of(item), self._reader.record(*items.document_of(item)))
            for item in self._table.get_many(keys)
        ]
        return sorted(found, key=lambda job: job[0], reverse=True)

    def with_status(self, statuses: Sequence[JobStatus]) -> list[JobRecord]:
        """Return every job in one of the states, oldest first.

        Unfinished ones are all there; one that finished just now may be missing.
        """
        active = (items.job_key(entry["sk"]) for entry in self._active(statuses))
        finished = (
            items.key_of(entry)
            for status in FINISHED.intersection(statuses)
            for entry in self._table.listed(status, below=LAST)
        )
        found = self._records(itertools.chain(active, finished))
        return [record for record in found if record.job.status in statuses]

    def with_open_attempts(self) -> list[JobRecord]:
        """Return every job with launches whose bill is not final, oldest first."""
        active = (items.job_key(entry["sk"]) for entry in self._active())
        return [record for record in self._records(active) if record.has_open_bills]

    def count(self, statuses: Sequence[JobStatus]) -> int:
        """Return how many jobs are in one of the states; of finished ones, up to just now."""
        finished = FINISHED.intersection(statuses)
        num_active = sum(1 for _ in self._active(set(statuses) - finished))
        return num_active + sum(self._table.num_listed(s, below=LAST) for s in finished)

    def commit(self, change: Change) -> JobRecord:
        """Write a change whole."""
        old = change.record
        new = old.model_copy(update={"version": old.version + 1})
        job_id = new.job.job_id
        first_line = int(self._unchanged(old, "num_lines")["num_lines"]) if change.lines else None
        actions = [
            _job_action(new, change, first_line),
            _active_action(new),
            *(action for entry in change.rounds for action in _round_actions(job_id, entry)),
        ]
        if first_line is not None:
            actions += map(_put, items.line_items(job_id, change.lines, first=first_line))
        actions += (_put(items.event_item(job_id, event)) for event in change.events)
        condemned = self._condemned(change)
        while condemned and len(actions) + len(condemned[-1]) <= MAX_TRANSACTION_ITEMS:
            actions += condemned.pop()
        self._forget_ahead(old, condemned)
        self._table.transact(actions)
        return new

    def delete(self, record: JobRecord) -> None:
        """Remove a job and everything about it, the record last."""
        job_id = record.job.job_id
        job = self._unchanged(record, "idempotency_key")
        everything = self._of(job_id, keys_only=True)
        record_key = items.job_key(job_id)
        self._table.delete_many(key for key in everything if key != record_key)
        actions = [_delete(record_key, **_if_unchanged(record)), _delete(items.active_key(job_id))]
        if "idempotency_key" in job:
            actions.append(_delete(items.idempotency_key(job["idempotency_key"])))
        self._table.transact(actions)

    def round(self, job_id: str, round_index: int) -> RoundEntry | None:
        """Return one round."""
        return next(
            items.rounds_of(self._of(job_id, items.round_name(round_index))),
            None,
        )

    def last_round(self, job_id: str) -> RoundEntry | None:
        """Return the newest round."""
        for newest in self._table.query(
            items.partition(job_id), "ROUND#", newest_first=True, page=1
        ):
            if (newest["part"], newest["parts"]) == (0, 1):
                return next(items.rounds_of([newest]))
            whole = self.round(job_id, int(newest["round"]))
            if whole is not None:
                return whole
        return None

    def rounds(self, job_id: str, *, first: int, limit: int) -> list[RoundEntry]:
        """Return rounds in order."""
        found = self._table.query(
            items.partition(job_id), "ROUND#", first=items.round_name(first), page=limit
        )
        return list(itertools.islice(items.rounds_of(found), limit))

    def ratios(self, job_id: str, *, before: int, limit: int) -> list[float]:
        """Return the newest ratios measured before a round, oldest of them first."""
        # One more than wanted: the round itself may be among them, planned for another learner.
        newest = self._table.query(
            items.partition(job_id), "RATIO#", newest_first=True, page=limit + 1
        )
        earlier = (item for item in newest if items.round_of_key(item) < before)
        return [float(item["ratio"]) for item in itertools.islice(earlier, limit)][::-1]

    def lines(self, job_id: str, *, skip: int = 0, limit: int | None = None) -> list[LedgerLine]:
        """Return ledger lines in the order they were written."""
        # The item that holds the first wanted line begins at most so many lines before it.
        first = items.lines_name(max(0, skip - items.LINES_PER_ITEM + 1))
        found = items.lines_of(self._of(job_id, "LINES#", first=first), skip=skip)
        return list(itertools.islice(found, limit))

    def events(self, record: JobRecord, *, after: int, limit: int) -> list[JobEvent]:
        """Return events of a job that are kept, in order."""
        job_id, last = record.job.job_id, record.num_events
        first = max(after + 1, last + 1 - KEPT_EVENTS, 1)
        wanted = range(first, min(last, first + limit - 1) + 1)
        keys = [items.event_key(job_id, number) for number in wanted]
        found = [parsed(JobEvent, *items.document_of(item)) for item in self._table.get_many(keys)]
        # One that was noted meanwhile may have taken the place of the oldest.
        return sorted((e for e in found if e.number in wanted), key=lambda event: event.number)

    def check(self) -> None:
        """Raise `StoreError` when the table or its index cannot be read."""
        self._table.check()

    def close(self) -> None:
        """Close the connections."""
        self._table.close()

    def _of(self, job_id: str, prefix: str = "", **query: Any) -> Iterator[Item]:
        return self._table.query(items.partition(job_id), prefix, **query)

    def _records(self, keys: Iterable[Item]) -> list[JobRecord]:
        """Return the jobs, each once and as far as they can be read, oldest first."""
        distinct = {key["pk"]: key for key in keys}
        found = sorted(self._table.get_many(list(distinct.values())), key=items.position_of)
        records = (self._reader.record(*items.document_of(item)) for item in found)
        return [record for record in records if record is not None]

    def _active(self, statuses: Sequence[JobStatus] | set[JobStatus] = _STATUSES) -> Iterator[Item]:
        entries = self._table.query(items.ACTIVE)
        return (entry for entry in entries if entry["status"] in statuses)

    def _unchanged(self, record: JobRecord, attribute: str) -> Item:
        """Return an attribute of the job's item, while its version is the record's."""
        job_id = record.job.job_id
        item = self._table.get(items.job_key(job_id), attributes=f"version, {attribute}")
        if item is None or item["version"] != record.version:
            raise VersionConflictError(f"job {job_id} changed since version {record.version}")
        return item

    def _condemned(self, change: Change) -> list[list[Item]]:
        """Return the deletions of each round to be forgotten, newest first."""
        if change.forget_rounds_from is None:
            return []
        job_id = change.record.job.job_id
        written = tuple(
            name(entry.round)
            for entry in change.rounds
            for name in (items.round_name, items.ratio_name)
        )
        keys = [
            items.key_of(item)
            for prefix, name in (("ROUND#", items.round_name), ("RATIO#", items.ratio_name))
            for item in self._of(
                job_id, prefix, first=name(change.forget_rounds_from), keys_only=True
            )
            if not item["sk"].startswith(written)
        ]
        keys.sort(key=items.round_of_key, reverse=True)
        return [
            [_delete(key) for key in of_round]
            for _, of_round in itertools.groupby(keys, items.round_of_key)
        ]

    def _forget_ahead(self, record: JobRecord, rounds: Sequence[Sequence[Item]]) -> None:
        """Delete rounds for which the change's own transaction has no room.

        Only while the job is as it was when that was decided, and newest first: an interruption
        leaves the job with fewer rounds of those it was to lose, and the same decision once more.
        """
        job_key = items.job_key(record.job.job_id)
        guard = {"ConditionCheck": {"Key": job_key, **_if_unchanged(record)}}
        for deletions in items.batched(rounds, MAX_TRANSACTION_ITEMS - 1):
            self._table.transact([guard, *deletions])


def _put(item: Item, **condition: Any) -> Item:
    return {"Put": {"Item": item, **condition}}


def _delete(key: Item, **condition: Any) -> Item:
    return {"Delete": {"Key": key, **condition}}


def _if_unchanged(record: JobRecord) -> Item:
    """Return the condition that the job's version is the record's."""
    return {
        "ConditionExpression": "version = :old",
        "ExpressionAttributeValues": {":old": record.version},
    }


def _job_action(new: JobRecord, change: Change, first_line: int | None) -> Item:
    expression = "SET version = :new, document = :document, gsi_pk = :status"
    values: Item = {
        ":old": change.record.version,
        ":new": new.version,
        ":document": new.model_dump_json(),
        ":status": new.job.status,
    }
    if first_line is not None:
        expression += ", num_lines = :lines"
        values[":lines"] = first_line + len(change.lines)
    return {
        "Update": {
            "Key": items.job_key(new.job.job_id),
            "UpdateExpression": expression,
            "ConditionExpression": "version = :old",
            "ExpressionAttributeValues": values,
        }
    }


def _active_action(record: JobRecord) -> Item:
    item = items.active_item(record)
    return _delete(items.active_key(record.job.job_id)) if item is None else _put(item)


def _round_actions(job_id: str, entry: RoundEntry) -> list[Item]:
    ratio = items.ratio_item(job_id, entry)
    ratio_key = items.key(items.partition(job_id), items.ratio_name(entry.round))
    parts = map(_put, items.round_items(job_id, entry))
    return [*parts, _put(ratio) if ratio else _delete(ratio_key)]
