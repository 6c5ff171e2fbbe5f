import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.launching.lambda_function import LambdaApiError
from services.scaler.launching.quota import Concurrency, ConcurrencyQuota


@pytest.mark.parametrize(
    ("requested", "limit", "jobs", "others", "expected"),
    [
        (64, None, 1, 0, 64),
        (64, 1000, 1, 0, 64),
        (64, 50, 1, 0, 50),
        (64, 100, 2, 90, 50),  # its share, although others hold more than theirs
        (64, 100, 2, 10, 64),  # more than its share while others leave it
        (64, 3, 8, 3, 1),  # never nothing
    ],
)
def test_a_job_gets_its_share_and_what_others_leave(
    requested: int, limit: int | None, jobs: int, others: int, expected: int
) -> None:
    busy = Concurrency(limit=limit, running_jobs=jobs, others_in_flight=others)
    assert busy.granted(requested) == expected


@given(
    requested=st.integers(1, 3000),
    limit=st.integers(1, 3000),
    jobs=st.integers(1, 20),
    others=st.integers(0, 3000),
)
def test_never_more_than_asked_for_or_than_the_limit(
    requested: int, limit: int, jobs: int, others: int
) -> None:
    busy = Concurrency(limit=limit, running_jobs=jobs, others_in_flight=others)
    got = busy.granted(requested)
    assert 1 <= got <= min(requested, limit)


async def test_the_limit_is_remembered_and_survives_an_api_that_is_away() -> None:
    answers: list[int | None] = [10, None, 20]

    async def fetch() -> int:
        answer = answers.pop(0)
        if answer is None:
            raise LambdaApiError("away")
        return answer

    quota = ConcurrencyQuota(fetch, ttl_s=3600)
    assert quota.known is None
    assert [await quota.limit(), await quota.limit(), quota.known] == [10, 10, 10]
    impatient = ConcurrencyQuota(fetch, ttl_s=0)
    with pytest.raises(LambdaApiError):
        await impatient.limit()
    assert await impatient.limit() == 20


@pytest.mark.parametrize(("own", "expected"), [(0, 64), (50, 50), (99, 1), (500, 1)])
def test_open_rounds_count_against_the_share(own: int, expected: int) -> None:
    busy = Concurrency(limit=100, running_jobs=1, others_in_flight=0, own_in_flight=own)
    assert busy.granted(64) == expected


@pytest.mark.parametrize(("limit", "expected"), [(128, [64, 64]), (64, [32, 32]), (1, [1, 1])])
def test_open_rounds_share_evenly(limit: int, expected: list[int]) -> None:
    got: list[int] = []
    for _ in expected:
        busy = Concurrency(limit=limit, running_jobs=1, others_in_flight=0, own_in_flight=sum(got))
        got.append(busy.granted(64, open_rounds=len(expected)))
    assert got == expected
