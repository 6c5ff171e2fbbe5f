"""Jobs, rounds and ledger lines for store tests, and the table they may lie in."""

import uuid
from typing import TYPE_CHECKING

import boto3

from services.scaler.store.base import Change, JobRecord, LeaseRecord, OpenAttempt, RoundEntry
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.rounds.test_order import entry, planned

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION = "us-east-1"


def record(job_id: str = "job") -> JobRecord:
    job = Job(job_id=job_id, spec=JobSpec(), environment=HOPPER, status="queued", created_at=1.5)
    return JobRecord(job=job)


def with_status(old: JobRecord, status: JobStatus) -> Change:
    job = old.job.model_copy(update={"status": status})
    return Change(record=old.model_copy(update={"job": job}))


def with_lease(old: JobRecord, lease_id: str | None) -> Change:
    lease = None
    if lease_id is not None:
        lease = LeaseRecord(lease_id=lease_id, learner_id="x", expires_at=9.0)
    return Change(record=old.model_copy(update={"lease": lease}))


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
            {"AttributeName": "gsi_pk", "AttributeType": "S"},
            {"AttributeName": "gsi_sk", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "queue",
                "KeySchema": [
                    {"AttributeName": "gsi_pk", "KeyType": "HASH"},
                    {"AttributeName": "gsi_sk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    client.close()
    return name
