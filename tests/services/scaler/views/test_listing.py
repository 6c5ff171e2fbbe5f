"""The list of jobs over HTTP: what is wanted of it, in which order, page by page."""

import httpx
import pytest

from services.scaler.views import listing
from shared.contracts.views.jobs import JobList, JobSummary
from tests.services.scaler.running import Scaler, wrong_fields

SEEDS = range(5)


def listed(scaler: Scaler, **query: str | int) -> JobList:
    response = scaler.http.get("/v1/jobs", params=query)
    assert response.status_code == 200, response.text
    return JobList.model_validate_json(response.content)


@pytest.fixture
def ids(scaler: Scaler) -> list[str]:
    """Five jobs: the odd ones tagged, the names from e to a."""
    return [
        scaler.submit(
            seed=seed,
            name=f"run {'edcba'[seed]}",
            tags=["odd", f"seed={seed}"] if seed % 2 else [],
            env_id="CartPole-v1" if seed == 4 else "Hopper-v5",
        ).job_id
        for seed in SEEDS
    ]


def test_jobs_come_newest_first_page_by_page(scaler: Scaler, ids: list[str]) -> None:
    seen: list[str] = []
    page = listed(scaler, limit=2)
    while True:
        seen += [job.job_id for job in page.jobs]
        if page.next_cursor is None:
            break
        page = listed(scaler, limit=2, cursor=page.next_cursor)
    assert seen == ids[::-1]
    summary = page.jobs[-1]
    assert (summary.name, summary.tags, summary.status, summary.round) == ("run e", (), "queued", 0)
    assert (summary.budget_usd, summary.actors_max, summary.scaling) == (5.0, 64, "nitro")


def test_jobs_are_filtered_and_sorted(scaler: Scaler, ids: list[str]) -> None:
    def found(**query: str | int) -> list[int]:
        return [ids.index(job.job_id) for job in listed(scaler, **query).jobs]

    assert found(tag="odd") == [3, 1]
    assert found(tag="odd", limit=1) == [3]
    assert found(tag="seed=1") == [1]
    assert found(q="cartpole") == [4]
    assert found(q="RUN B") == [3]
    assert found(q="Seed=") == [3, 1]
    assert found(q=ids[2][-8:]) == [2]
    assert found(q="nothing like it") == []
    assert found(sort="name") == [4, 3, 2, 1, 0]
    assert found(sort="-name", tag="odd") == [1, 3]
    assert found(sort="created") == [0, 1, 2, 3, 4]
    assert found(sort="-return") == [4, 3, 2, 1, 0], "without a return, as they were"
    first = listed(scaler, sort="created", limit=3)
    second = listed(scaler, sort="created", limit=3, cursor=first.next_cursor or "")
    assert [ids.index(job.job_id) for job in (*first.jobs, *second.jobs)] == [0, 1, 2, 3, 4]
    assert second.next_cursor is None
    scaler.http.post(f"/v1/jobs/{ids[2]}/stop")
    assert found(status="stopped") == [2]
    for wrong in ({"sort": "size"}, {"tag": "two words"}, {"status": "done"}):
        assert wrong_fields(scaler.http.get("/v1/jobs", params=wrong)) == [*wrong]


def test_a_page_looks_at_so_many_jobs_and_says_so(
    scaler: Scaler, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_LOOKED_AT", 2)
    monkeypatch.setattr(listing, "_READ_AT_ONCE", 2)
    page = listed(scaler, q="run e")
    seen: list[JobSummary] = []
    while page.next_cursor is not None:
        assert page.truncated
        seen += page.jobs
        page = listed(scaler, q="run e", cursor=page.next_cursor)
    assert (seen, page.truncated) == ([], False)
    assert [job.job_id for job in page.jobs] == ids[:1]
    by_name = listed(scaler, sort="name")
    assert ([job.job_id for job in by_name.jobs], by_name.truncated) == (ids[:2:-1], True)


def test_what_has_not_changed_is_not_sent_again(scaler: Scaler, ids: list[str]) -> None:
    first = scaler.http.get("/v1/jobs")
    known = {"If-None-Match": f'"other", W/{first.headers["ETag"]}'}
    again = scaler.http.get("/v1/jobs", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    scaler.http.post(f"/v1/jobs/{ids[0]}/stop")
    changed: httpx.Response = scaler.http.get("/v1/jobs", headers=known)
    assert changed.status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a\nb"),
        ("name", " spaced"),
        ("name", "x" * 81),
        ("tags", ["with space"]),
        ("tags", ["<b>"]),
        ("tags", ["x" * 65]),
        ("tags", [f"t{n}" for n in range(17)]),
    ],
)
def test_names_and_tags_are_bounded(
    lasting_scaler: Scaler, field: str, value: str | list[str]
) -> None:
    wrong = wrong_fields(lasting_scaler.http.post("/v1/jobs", json={field: value}))
    assert wrong[0].startswith(field)
