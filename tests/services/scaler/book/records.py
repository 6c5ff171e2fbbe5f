"""Jobs, rounds and ledger lines for store tests, and the table they may lie in."""

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import boto3

from services.scaler.book.attempts import OpenAttempt, RoundEntry
from services.scaler.book.book import Book
from services.scaler.book.records import Change, IdempotencyEntry, JobRecord, LeaseRecord
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.rounds.test_order import entry, planned
from tests.services.scaler.running import result

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION = "us-east-1"
OpenBook = Callable[[], Book]
"""Opens the same jobs again and again."""


def record(job_id: str = "job") -> JobRecord:
    job = Job(job_id=job_id, spec=JobSpec(), environment=HOPPER, status="queued", created_at=1.5)
    return JobRecord(job=job)


async def write(
    book: Book,
    job_id: str = "job",
    *,
    status: JobStatus | None = None,
    lease_id: str | None = None,
    lines: Sequence[LedgerLine] = (),
    rounds: Sequence[RoundEntry] = (),
    forget_rounds_from: int | None = None,
    **updated: object,
) -> JobRecord:
    """Change a job as it is now; return its record after it."""

    def decide(old: JobRecord) -> Change:
        if status is not None:
            updated["job"] = old.job.model_copy(update={"status": status})
        if lease_id is not None:
            updated["lease"] = LeaseRecord(lease_id=lease_id, learner_id="x", expires_at=9.0)
        counted = {"num_lines": old.num_lines + len(lines)}
        return Change(
            record=old.model_copy(update=counted | updated),
            lines=tuple(lines),
            rounds=tuple(rounds),
            forget_rounds_from=forget_rounds_from,
        )

    written = await book.change(job_id, decide)
    assert written is not None
    return written


def line(amount: float) -> LedgerLine:
    return LedgerLine(
        round=0,
        attempt=0,
        item="learner",
        quantity=amount,
        unit="second",
        unit_price_usd=1.0,
        amount_usd=amount,
    )


def open_attempt() -> OpenAttempt:
    return OpenAttempt(
        round=0, attempt=0, lease_id="l", num_invocations=2, reserved_usd=1.0, warm=0
    )


def round_entry(index: int, ratio: float | None = None) -> RoundEntry:
    return entry(planned(index, 0)).model_copy(update={"ratio": ratio})


def plain_client() -> "DynamoDBClient":
    """Return a client that takes plain values for attributes, as the store does."""
    return boto3.resource("dynamodb", region_name=REGION).meta.client


def make_table() -> str:
    """Make a table as the deployment does; return its name."""
    name = f"nitro-{uuid.uuid4().hex[:8]}"
    client = boto3.client("dynamodb", region_name=REGION)
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    )
    client.close()
    return name


def ids(records: list[JobRecord]) -> list[str]:
    return [one.job.job_id for one in records]


def key(name: str, job_id: str, digest: str = "d") -> IdempotencyEntry:
    return IdempotencyEntry(key=name, body_digest=digest, job_id=job_id)


def large_round(index: int) -> RoundEntry:
    """Return a round that takes three parts, and has a ratio."""
    returns = (22.0,) * 40_000
    return round_entry(index, float(index)).model_copy(
        update={"result": result(index, episode_returns=returns)}
    )
