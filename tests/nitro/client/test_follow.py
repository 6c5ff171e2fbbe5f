"""Which of a job's rounds are fetched again, and which are final."""

from typing import cast

import pytest

from nitro.client.client import NitroClient
from nitro.client.follow import RoundFeed
from shared.contracts.rounds import LaunchCounts, RoundPage, RoundRecord
from tests.nitro.synthetic_run import JOB_ID, plan, result

LANDED = LaunchCounts(requested=8, succeeded=8, failed=0, reissued=0, throttled=0)


class Pages:
    """A job's rounds as the API pages them, two at a time."""

    def __init__(self, *records: RoundRecord) -> None:
        self.records = list(records)
        self.asked: list[str | None] = []

    def rounds(self, job_id: str, *, cursor: str | None = None) -> RoundPage:
        assert job_id == JOB_ID
        self.asked.append(cursor)
        first = int(cursor or 0)
        more = str(first + 2) if first + 2 < len(self.records) else None
        return RoundPage(rounds=tuple(self.records[first : first + 2]), next_cursor=more)


def record(
    index: int, *, reserved_usd: float = 0.0, launches: LaunchCounts | None = LANDED
) -> RoundRecord:
    return RoundRecord(
        plan=plan(index),
        result=result(index),
        cost_usd=0.0 if reserved_usd else 0.001,
        reserved_usd=reserved_usd,
        launches=launches,
    )


def test_a_round_whose_actors_have_not_all_ended_is_fetched_until_its_bill_is_final() -> None:
    pages = Pages(record(0), record(1, reserved_usd=0.25, launches=None), record(2))
    feed = RoundFeed(cast("NitroClient", pages), JOB_ID)
    assert [r.cost_usd for r in feed.fetch()] == [0.001, 0.0, 0.001]
    pages.records[1] = record(1)
    assert [r.cost_usd for r in feed.fetch()] == [0.001, 0.001, 0.001]


@pytest.mark.parametrize("launches", [LANDED, None], ids=["by functions", "by own actors"])
def test_what_is_final_is_not_fetched_again(launches: LaunchCounts | None) -> None:
    pages = Pages(*(record(index, launches=launches) for index in range(5)))
    feed = RoundFeed(cast("NitroClient", pages), JOB_ID)
    assert feed.fetch() == tuple(pages.records)
    assert pages.asked == [None, "2", "4"]
    assert feed.fetch() == tuple(pages.records)
    assert pages.asked == [None, "2", "4", "4"]
