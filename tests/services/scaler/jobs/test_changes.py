"""The end of a job, whoever brings it about: nothing of it stays open."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.scaler.book.records import Change, JobRecord
from services.scaler.jobs.changes import JobChanges
from services.scaler.jobs.leases import MOST_LOST, LeaseService
from services.scaler.launching.launches import Launches
from services.scaler.metrics import Metrics
from services.scaler.money.accounting import Spending
from tests.services.scaler.gradients.test_service import BASIS, Rig, opened_rig
from tests.services.scaler.money.test_accounting_spending import NOW
from tests.services.scaler.services_without_network import Inline, SilentCache, do
from tests.services.scaler.simulated_job import ChanceInvoker

SPENDING = Spending(basis=BASIS, clock="wall")


def changes_of(rig: Rig) -> JobChanges:
    launches = Launches(
        ChanceInvoker(random.Random(1), cruel=False),
        SilentCache(),
        Inline(),
        Metrics(),
        SPENDING,
    )
    return JobChanges(book=rig.book, launches=launches, gradients=rig.service)


@pytest.fixture
def rig(tmp_path: Path, cache_url: str) -> Iterator[Rig]:
    with opened_rig(tmp_path, cache_url) as made:
        yield made


def test_a_job_that_has_lost_its_last_learner_keeps_no_money_for_gradients(rig: Rig) -> None:
    rig.ask(0, 0)
    rig.invoker.end(billed_s=0.1)
    changes = changes_of(rig)

    def lose(record: JobRecord) -> Change:
        return Change(record=record.model_copy(update={"lost_leases": MOST_LOST - 1}))

    do(rig.book.change("job", lose))
    leases = LeaseService(
        rig.book,
        ttl_s=30.0,
        heartbeat_every_s=5.0,
        now=lambda: NOW + 1e6,
        spending=SPENDING,
        change=changes.change,
    )
    assert do(leases.claim("next")) is None
    record = rig.record()
    assert record.job.status == "failed"
    assert record.open_gradients == ()
    requests = [x.quantity for x in rig.book.lines("job") if x.item == "gradient_requests"]
    assert requests == [1.0], "what ran is billed, and not what was reserved"
