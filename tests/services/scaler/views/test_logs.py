"""Log lines that name a job, over HTTP and from CloudWatch."""

import asyncio
import time
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from services.scaler.views.logs import CloudWatchLogs, LogsError, about, log_page
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.views.files import LogPage
from tests.services.scaler.running import Scaler, StartScaler
from tests.services.scaler.services_without_network import Inline

TIME = "2026-11-24 10:00:00,000"


def test_the_newest_lines_of_a_job_are_shown(start_scaler: StartScaler, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with start_scaler(logs=folder) as scaler:
        job_id = scaler.submit().job_id
        lines = [f"{TIME} INFO round {n} job={job_id!r}" for n in range(5)]
        (folder / "learner.log").write_text("\n".join([*lines, f"{TIME} other job='x'"]))
        (folder / "learner-2.log").write_text(f"{TIME} ERROR job={job_id!r}\nTraceback\n  here\n")
        (folder / "emulator.log").write_text(f"{TIME} job={job_id!r}\n")

        def shown(**query: str | int) -> LogPage:
            answer = scaler.http.get(f"/v1/jobs/{job_id}/logs", params=query)
            assert answer.status_code == 200, answer.text
            return LogPage.model_validate_json(answer.content)

        page = shown(source="learner")
        assert [line.text for line in page.lines] == [
            f"{TIME} ERROR job={job_id!r}",
            "Traceback",
            "  here",
            *lines,
        ]
        newest = shown(source="learner", limit=2)
        assert [line.text for line in newest.lines] == lines[-2:]
        assert newest.truncated
        assert {line.source for line in shown().lines} == {"learner"}
    with start_scaler() as scaler:
        page = LogPage.model_validate_json(scaler.http.get(f"/v1/jobs/{job_id}/logs").content)
        assert (page.sources, page.lines) == ((), ())


def test_a_job_whose_id_begins_like_another_is_not_that_one() -> None:
    lines = ["2026-01-01 job='a-1'", "2026-01-01 job='a-12'", "2026-01-01 job='b-a-1'"]
    assert [*about("a-1", lines)] == lines[:1]


class Group:
    """A log group that answers as CloudWatch does: oldest first, in pages, some of them empty."""

    def __init__(self, events: list[tuple[float, str]], *, page: int = 100) -> None:
        self.events, self.page = events, page
        self.requests: list[tuple[int, int]] = []
        self.throttled = False

    def filter_log_events(
        self,
        *,
        logGroupName: str,  # noqa: N803
        filterPattern: str,  # noqa: N803
        startTime: int,  # noqa: N803
        endTime: int,  # noqa: N803
        nextToken: str = "0",  # noqa: N803, S107
    ) -> dict[str, object]:
        self.requests.append((startTime, endTime))
        if self.throttled:
            error = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
            raise ClientError(error, "FilterLogEvents")  # type: ignore[arg-type]
        inside = [text for at, text in self.events if startTime <= at * 1000 <= endTime]
        upto = int(nextToken) + self.page
        wanted = filterPattern.strip('"')
        shown = [text for text in inside[int(nextToken) : upto] if wanted in text]
        more = {"nextToken": str(upto)} if upto < len(inside) else {}
        return {"events": [{"message": text} for text in shown], **more}


BEGIN, NOW = 1_764_000_000.0, 1_764_000_000.0 + 30 * 86_400


def job(**changes: object) -> Job:
    whole = {"job_id": "a-1", "spec": JobSpec(), "status": "running", "created_at": BEGIN}
    return Job.model_validate(whole | changes)


def page_of(group: Group, of: Job, limit: int = 10) -> LogPage:
    logs = CloudWatchLogs({"scaler": "scaler"}, group, Inline(), now=lambda: NOW)
    return asyncio.run(log_page(logs, of, source=None, limit=limit))


def test_a_long_jobs_newest_lines_are_found() -> None:
    events = [(BEGIN + 60 * n, f"line {n} a-1") for n in range(30 * 24 * 60)]
    group = Group(events)
    page = page_of(group, job())
    assert [line.text for line in page.lines] == [text for _, text in events[-10:]]
    assert page.truncated
    assert len(group.requests) <= 10
    ended = page_of(group, job(finished_at=BEGIN + 86_400.0))
    newest = max(n for n in range(len(events)) if 60 * n <= 86_400 + 60)
    assert ended.lines[-1].text == f"line {newest} a-1"


def test_lines_far_back_are_found_and_a_whole_log_is_not_truncated() -> None:
    group = Group([(BEGIN + n, f"line {n} a-1") for n in range(3)])
    page = page_of(group, job())
    assert [line.text for line in page.lines] == [text for _, text in group.events]
    assert not page.truncated
    starts = [start for start, _ in group.requests]
    assert starts[-1] == int(BEGIN * 1000)
    assert [end for _, end in group.requests[1:]] == [start - 1 for start in starts[:-1]]


def test_pages_without_a_line_of_the_job_are_counted_and_told() -> None:
    events = [(NOW - 3600 + n, f"line {n} other") for n in range(3500)]
    group = Group([*events, (NOW - 1, "last a-1")])
    page = page_of(group, job())
    assert ([line.text for line in page.lines], page.truncated) == (["last a-1"], True)
    assert len(group.requests) == 10


def test_viewers_share_what_was_read_and_a_failure_names_its_cause(scaler: Scaler) -> None:
    group = Group([(NOW, "line a-1")])
    group.throttled = True
    logs = CloudWatchLogs({"scaler": "scaler"}, group, Inline(), now=lambda: NOW)
    with pytest.raises(LogsError, match="Rate exceeded"):
        asyncio.run(log_page(logs, job(), source=None, limit=10))
    scaler.parts.logs = CloudWatchLogs({"scaler": "scaler"}, group, Inline())
    answer = scaler.http.get(f"/v1/jobs/{scaler.submit().job_id}/logs")
    assert (answer.status_code, "Rate exceeded" in answer.json()["detail"]) == (502, True)
    group.throttled = False
    logs = CloudWatchLogs({"scaler": "scaler"}, group, Inline(), now=lambda: NOW)
    first = asyncio.run(log_page(logs, job(), source=None, limit=10))
    asked = len(group.requests)
    assert asyncio.run(log_page(logs, job(), source=None, limit=10)) == first
    assert len(group.requests) == asked


@pytest.mark.usefixtures("aws")
def test_lines_come_from_cloudwatch() -> None:
    client = boto3.client("logs")
    client.create_log_group(logGroupName="scaler")
    client.create_log_stream(logGroupName="scaler", logStreamName="s")
    job = Job(job_id="a-1", spec=JobSpec(), status="queued", created_at=time.time() - 60)
    events = [
        {"timestamp": int(time.time() * 1000) + n, "message": f"line {n} job='{name}'"}
        for n, name in enumerate(("a-1", "other", "a-1"))
    ]
    client.put_log_events(logGroupName="scaler", logStreamName="s", logEvents=events)
    logs = CloudWatchLogs({"scaler": "scaler"}, client, Inline())
    page = asyncio.run(log_page(logs, job, source=None, limit=10))
    assert [line.text for line in page.lines] == ["line 0 job='a-1'", "line 2 job='a-1'"]
