"""A record of a newer version is read as far as it is known; a damaged one stops nothing else."""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.scaler.store.dynamodb_items import job_key, round_name
from tests.services.scaler.lambda_endpoint import healthy
from tests.services.scaler.running import StartScaler, result
from tests.services.scaler.store.records import make_table, plain_client

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
        with closing(plain_client()) as client:
            item: Any = client.get_item(TableName=table, Key=job_key(job_id))["Item"]
            edit(document := json.loads(item["document"]))
            item["document"] = json.dumps(document)
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
        assert page["next_cursor"] is None
        assert scaler.lease().job.job_id == good
        with scaler.lambdas.changed:
            assert scaler.lambdas.changed.wait_for(lambda: scaler.lambdas.provisioned == 2, 10)
        asked = scaler.http.get(f"/v1/jobs/{bad}")
    assert asked.status_code == 500
    wanted = f"job {bad} holds a JobRecord that this version of Nitro cannot read (job.spec.seed: "
    assert asked.json()["detail"].startswith(wanted)
    named = [vars(told)["job"] for told in caplog.records if told.message == "job left aside"]
    assert named == [bad]


def damage_round_sqlite(path: Path, job_id: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE rounds SET document = '{}' WHERE job_id = ?", (job_id,))


def damage_round_in_table(table: str, job_id: str) -> None:
    with closing(plain_client()) as client:
        found = client.query(
            TableName=table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :round)",
            ExpressionAttributeValues={
                ":pk": job_key(job_id)["pk"],
                ":round": round_name(0),
            },
        )
        for item in found["Items"]:
            client.put_item(TableName=table, Item={**item, "document": "{}"})


def test_a_round_that_cannot_be_read_keeps_no_scaler_from_starting(
    kept: tuple[dict[str, str], Rewrite],
    start_scaler: StartScaler,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings, _ = kept
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
    if settings:
        damage_round_in_table(settings["table"], bad)
    else:
        damage_round_sqlite(tmp_path / "nitro.sqlite3", bad)
    with caplog.at_level(logging.ERROR), start_scaler(**settings) as scaler:
        waits = [scaler.job(job_id).waits_for is not None for job_id in (bad, good)]
        assert waits == [False, True]
        booked = [scaler.parts.store.job(job_id) for job_id in (bad, good)]
        open_now = [record.open_attempts[0].outcome for record in booked if record]
        assert [outcome is not None for outcome in open_now] == [False, True]
        gate.set()
    named = {vars(told)["job"] for told in caplog.records if told.message == "job left aside"}
    assert named == {bad}
