"""Jobs in a book, and a service that leases them on a clock of our own."""

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord
from services.scaler.jobs.leases import LeaseService
from services.scaler.money.accounting import Spending
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.leases import Lease
from shared.contracts.stop_rule import StopRule
from shared.money.costs import CostBasis
from shared.money.prices import AWS_US_EAST_1_2026_11
from tests.services.scaler.lambda_endpoint import HOPPER

SPENDING = Spending(
    basis=CostBasis(
        prices=AWS_US_EAST_1_2026_11,
        learner_usd_per_s=1e-3,
        cpu_learner_usd_per_s=1e-4,
        cache_usd_per_s=0.0,
        scaler_usd_per_s=0.0,
        memory_mb=1024,
        function_timeout_s=60.0,
        provisioned=0,
    ),
    clock="wall",
)
"""A dollar every thousand seconds."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lease_service(book: Book, clock: Clock, spending: Spending) -> LeaseService:
    return LeaseService(
        book,
        ttl_s=30.0,
        heartbeat_every_s=5.0,
        now=clock,
        spending=spending,
        change=book.change,
    )


async def add_job(
    book: Book, job_id: str, *, budget_usd: float = 100.0, learner: LearnerKind = "gpu"
) -> None:
    job = Job(
        job_id=job_id,
        spec=JobSpec(stop=StopRule(budget_usd=budget_usd)),
        environment=HOPPER,
        learner=learner,
        status="queued",
        created_at=0.0,
    )
    await book.create(JobRecord(job=job))


def stored(book: Book, job_id: str) -> JobRecord:
    record = book.job(job_id)
    assert record is not None
    return record


async def set_status(book: Book, job_id: str, status: JobStatus) -> None:
    def change(record: JobRecord) -> Change:
        job = record.job.model_copy(update={"status": status})
        return Change(record=record.model_copy(update={"job": job}))

    await book.change(job_id, change)


def claimed(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease
