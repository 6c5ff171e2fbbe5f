"""Jobs as tables, as they come out on a terminal."""

import io

from rich.console import Console

from nitro.job_view import job_table
from shared.billing import JobCost
from tests.nitro.synthetic_run import job


def _rendered(renderable: object, *, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def _cost(*, reserved_usd: float) -> JobCost:
    return JobCost(
        job_id=job().job_id,
        total_usd=0.0917 + reserved_usd,
        reserved_usd=reserved_usd,
        by_item={"learner": 0.09, "cache": 0.0017},
        lines=(),
        price_table="test prices",
        projected_wall_s=75.0,
        assumptions=(),
    )


def test_what_is_reserved_stands_apart_from_what_the_items_add_up_to() -> None:
    running = job(status="running", stop_reason=None, finished_at=None, spent_usd=0.0917)
    text = _rendered(job_table(running, _cost(reserved_usd=0.4524)), width=100)
    assert "0.0917 USD of 5 (0.4524 more reserved for the round in flight)" in text
    assert "test prices" in text


def test_nothing_is_said_of_reservations_where_there_are_none() -> None:
    text = _rendered(job_table(job(), _cost(reserved_usd=0.0)), width=100)
    assert "0.0917 USD of 5" in text
    assert "reserved" not in text
