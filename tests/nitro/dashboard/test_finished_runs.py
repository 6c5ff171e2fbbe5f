"""The page over run folders: the API's own shapes, filled from files, and nothing to be changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from nitro.dashboard.finished_runs import finished_runs_app
from nitro.errors import CommandError
from tests.nitro.synthetic_run import write_run
from tests.patience import ANSWER_S
from tests.services.scaler.lambda_endpoint import serve


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    write_run(tmp_path, job_id="older", rounds=12, created_at=1000.0)
    write_run(tmp_path, job_id="cut-short", rounds=6, created_at=2000.0, status="running")
    (tmp_path / "cut-short" / "cost.json").unlink(missing_ok=True)
    with finished_runs_app(tmp_path) as (app, token), serve(app) as url:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S) as client:
            yield client


def test_runs_are_jobs_newest_first(http: httpx.Client) -> None:
    jobs = http.get("/v1/jobs").json()["jobs"]
    assert [(job["job_id"], job["status"], job["round"]) for job in jobs] == [
        ("cut-short", "stopped", 6),
        ("older", "succeeded", 12),
    ]


def test_curves_and_bill_are_those_of_the_files(http: httpx.Client, tmp_path: Path) -> None:
    curves = http.get("/v1/jobs/older/curves").json()
    lines = [
        json.loads(text) for text in (tmp_path / "older/rounds.jsonl").read_text().split("\n")[:-1]
    ]
    made = [line for line in lines if line["result"]]
    assert curves["columns"]["actors"] == [line["plan"]["num_actors"] for line in made]
    assert curves["columns"]["round"] == list(range(12))
    assert curves["next_after"] == 11
    for unknown in ("actors_lost", "retried", "throttled", "cold_starts"):
        assert curves["columns"][unknown] == [None] * 12
    bill = [
        json.loads(text) for text in (tmp_path / "older/ledger.jsonl").read_text().split("\n")[:-1]
    ]
    by_item = http.get("/v1/jobs/older/cost").json()["by_item"]
    learner = sum(line["amount_usd"] for line in bill if line["item"] == "learner")
    assert by_item["learner"] == pytest.approx(learner)


def test_no_system_is_looked_for(http: httpx.Client) -> None:
    system = http.get("/v1/system").json()
    assert (system["live"], system["problems"], system["cache"]) == (False, {}, None)
    assert (system["jobs"]["succeeded"], system["jobs"]["stopped"]) == (1, 1)


def test_nothing_can_be_changed(http: httpx.Client) -> None:
    assert http.get("/v1/session").json()["role"] == "viewer"
    for answer in (http.post("/v1/jobs/older/resume", json={}), http.delete("/v1/jobs/older")):
        assert answer.status_code == 403
    assert http.get("/v1/jobs", headers={"Authorization": "Bearer another"}).status_code == 401


def test_a_damaged_run_is_named_and_the_others_are_shown(
    http: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "older/rounds.jsonl").write_text("{}\n{}\n")
    answer = http.get("/v1/jobs/older/curves")
    assert answer.status_code == 503
    assert "rounds.jsonl, line 1" in answer.json()["detail"]
    assert http.get("/v1/jobs/cut-short/curves").status_code == 200


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no run in"), finished_runs_app(tmp_path):
        pass
