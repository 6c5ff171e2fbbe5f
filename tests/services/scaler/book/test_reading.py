"""A record of a newer version is read as far as it is known; a damaged one stops nothing else."""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.scaler.book.dynamodb import DynamoDbTable
from services.scaler.book.layout import job_key, partition, parts_of
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.table import Table
from tests.services.scaler.book.records import REGION, make_table
from tests.services.scaler.lambda_endpoint import healthy
from tests.services.scaler.running import StartScaler, result

SPEC = {"actors": {"min": 2, "max": 2}}
Rewrite = Callable[[str, Callable[[Any], None]], None]
"""Changes the stored document of a job."""


def rewriting(table: Table) -> Rewrite:
    def rewrite(job_id: str, edit: Callable[[Any], None]) -> None:
        item = table.get(job_key(job_id))
        assert item is not None
        edit(document := json.loads(item.body))
        table.write([replace(item, body=json.dumps(document))], expect={})

    return rewrite


@pytest.fixture(params=["sqlite", "dynamodb"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, str], Table]:
    """Where a scaler keeps its jobs, as settings, and the same table for others to write to."""
    if request.param == "sqlite":
        return {}, SqliteTable(tmp_path / "nitro.sqlite3")
    request.getfixturevalue("aws")
    name = make_table()
    return {"store": "dynamodb", "table": name}, DynamoDbTable.connect(name, region=REGION)


def test_a_job_that_a_newer_version_wrote_goes_on(
    kept: tuple[dict[str, str], Table], start_scaler: StartScaler
) -> None:
    settings, table = kept

    def upgrade(document: Any) -> None:
        for part in (document, document["job"], document["job"]["spec"]["stop"]):
            part["of_tomorrow"] = 1
        document["job"]["full_hyperparameters"]["of_tomorrow"] = 1

    with start_scaler(**settings) as scaler:
        job_id = scaler.submit(**SPEC).job_id
    rewriting(table)(job_id, upgrade)
    with start_scaler(**settings) as scaler:
        lease = scaler.lease()
        assert lease.job.job_id == job_id
        assert (
            lease.job.hyperparameters
            == lease.job.model_copy(update={"full_hyperparameters": {}}).hyperparameters
        )
        scaler.round(lease, 0)
        scaler.landed(job_id)
        scaler.round(lease, 1, previous=result(0))
        assert scaler.finish(lease).status == "succeeded"


def test_a_job_that_cannot_be_read_is_named_and_left_aside(
    kept: tuple[dict[str, str], Table],
    start_scaler: StartScaler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings, table = kept
    with start_scaler(**settings) as scaler:
        bad, good = (scaler.submit(**SPEC).job_id for _ in range(2))
        rewriting(table)(bad, lambda document: document["job"]["spec"].update(seed="none"))
    caplog.clear()  # the first scaler may have seen it, too
    with (
        caplog.at_level(logging.ERROR),
        start_scaler(**settings, provisioned_concurrency=2) as scaler,
    ):
        page = scaler.http.get("/v1/jobs").json()
        assert [job["job_id"] for job in page["jobs"]] == [good, bad], "of both it knows the row"
        assert scaler.lease().job.job_id == good
        with scaler.lambdas.changed:
            assert scaler.lambdas.changed.wait_for(lambda: scaler.lambdas.provisioned == 2, 10)
        asked = scaler.http.get(f"/v1/jobs/{bad}")
    assert asked.status_code == 500
    wanted = f"job {bad} holds a JobRecord that this version of Nitro cannot read (job.spec.seed: "
    assert asked.json()["detail"].startswith(wanted)
    named = [vars(told)["job"] for told in caplog.records if told.message == "job left aside"]
    assert named == [bad]


def test_a_round_that_cannot_be_read_keeps_no_scaler_from_starting(
    kept: tuple[dict[str, str], Table],
    start_scaler: StartScaler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings, table = kept
    gate = threading.Event()
    with start_scaler(**settings, shutdown_wait_s=0.01) as scaler:
        scaler.lambdas.behave = lambda task, nth: (
            healthy(task, nth)
            if task["mode"] == "describe"
            else replace(healthy(task, nth), gate=gate)
        )
        scaler.lambdas.oldest_invocation_s = 3600.0
        bad, good = (scaler.submit(**SPEC).job_id for _ in range(2))
        for _ in range(2):
            scaler.round(scaler.lease(), 0)
    for item in list(table.query(partition(bad), parts_of(0))):
        table.write([replace(item, body="1 {}")], expect={})
    with caplog.at_level(logging.ERROR), start_scaler(**settings) as scaler:
        waits = [scaler.job(job_id).waits_for is not None for job_id in (bad, good)]
        assert waits == [False, True]
        booked = [scaler.parts.book.job(job_id) for job_id in (bad, good)]
        open_now = [record.open_attempts[0].outcome for record in booked if record]
        assert [outcome is not None for outcome in open_now] == [False, True]
        gate.set()
    named = {vars(told)["job"] for told in caplog.records if told.message == "job left aside"}
    assert named == {bad}
