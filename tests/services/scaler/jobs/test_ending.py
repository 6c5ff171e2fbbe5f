"""The end of a job that nobody trains: billed to whichever came first, now or its lease's end."""

import pytest

from services.scaler.jobs.ending import ended
from tests.services.scaler.money.test_accounting_spending import BASIS, NOW, held, spending


@pytest.mark.parametrize(("passed_s", "billed_s"), [(60.0, 60.0), (50_000.0, 36_000.0)])
def test_a_job_is_billed_until_it_ends_or_its_lease_does(passed_s: float, billed_s: float) -> None:
    now = NOW + passed_s
    change = ended(held(), spending(), now, "max_wall", "too slow")
    assert sum(line.amount_usd for line in change.lines) == pytest.approx(
        billed_s * BASIS.usd_per_s
    )
    job = change.record.job
    assert (job.status, job.stop_reason, job.error) == ("failed", "max_wall", "too slow")
    assert (job.finished_at, change.record.lease) == (now, None)


def test_a_job_that_was_never_leased_costs_nothing() -> None:
    waiting = held().model_copy(update={"lease": None, "accounted_until": None})
    change = ended(waiting, spending(), NOW + 60, "user")
    assert (change.lines, change.record.settled_usd) == ((), 0.0)
    assert change.record.job.status == "stopped"
