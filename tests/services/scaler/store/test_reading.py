"""A record of a newer version is read as far as it is known; a damaged one stops nothing else."""

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from services.scaler.store.dynamodb_items import job_key
from tests.services.scaler.running import StartScaler, result
from tests.services.scaler.store.records import REGION, make_table

SPEC = {"actors": {"min": 2, "max": 2}}
Rewrite = Callable[[str, Callable[[Any], None]], None]
"""Changes the stored document of a job."""


def rewriting_sqlite(path: Path) -> Rewrite:
    def rewrite(job_id: str, edit: Callable[[Any], None]) -> None:
        with closing(sqlite3.connect(path)) as file, file:
            query = "SELECT document FROM jobs WHERE job_id = ?"
            (text,) = file.execute(query, (job_id,)).fetchone()
            edit(document := json.loads(text))
            update = "UPDATE jobs SET document = ? WHERE job_id = ?"
            file.execute(update, (json.dumps(document), job_id))

    return rewrite


def rewriting_table(table: str) -> Rewrite:
    def rewrite(job_id: str, edit: Callable[[Any], None]) -> None:
        with closing(boto3.client("dynamodb", region_name=REGION)) as client:
            item = client.get_item(TableName=table, Key=job_key(job_id))["Item"]
            edit(document := json.loads(item["document"]["S"]))
            item["document"]["S"] = json.dumps(document)
            client.put_item(TableName=table, Item=item)

    return rewrite


@pytest.fixture(params=["sqlite", "dynamodb"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, str], Rewrite]:
    """Where a scaler keeps its jobs, as settings, and a way to rewrite them."""
    if request.param == "sqlite":
        return {}, rewriting_sqlite(tmp_path / "nitro.sqlite3")
    request.getfixturevalue("aws")
    table = make_table()
    return {"store": "dynamodb", "table": table}, rewriting_table(table)


def test_a_job_that_a_newer_version_wrote_goes_on(
    kept: tuple[dict[str, str], Rewrite], start_scaler: StartScaler
) -> None:
    settings, rewrite = kept

    def upgrade(document: Any) -> None:
        for part in (document, document["job"], document["job"]["spec"]["stop"]):
            part["of_tomorrow"] = 1
        document["job"]["full_hyperparameters"]["of_tomorrow"] = 1

    with start_scaler(**settings) as scaler:
        job_id = scaler.submit(**SPEC).job_id
        rewrite(job_id, upgrade)
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
    kept: tuple[dict[str, str], Rewrite],
    start_scaler: StartScaler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings, rewrite = kept
    with start_scaler(**settings) as scaler:
        bad, good = (scaler.submit(**SPEC).job_id for _ in range(2))
        rewrite(bad, lambda document: document["job"]["spec"].update(seed="none"))
    caplog.clear()  # the first scaler may have seen it, too
    with (
        caplog.at_level(logging.ERROR),
        start_scaler(**settings, provisioned_concurrency=2) as scaler,
    ):
        page = scaler.http.get("/v1/jobs", params={"limit": 1}).json()
        assert [job["job_id"] for job in page["jobs"]] == [good]
        rest = scaler.http.get("/v1/jobs", params={"cursor": page["next_cursor"]}).json()
        assert rest == {"jobs": [], "next_cursor": None}
        assert scaler.lease().job.job_id == good
        with scaler.lambdas.changed:
            assert scaler.lambdas.changed.wait_for(lambda: scaler.lambdas.provisioned == 2, 10)
        asked = scaler.http.get(f"/v1/jobs/{bad}")
    assert asked.status_code == 500
    wanted = f"job {bad} holds a JobRecord that this version of Nitro cannot read (job.spec.seed: "
    assert asked.json()["detail"].startswith(wanted)
    named = [vars(told)["job"] for told in caplog.records if told.message == "job left aside"]
    assert named == [bad]
