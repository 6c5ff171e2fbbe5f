"""A secret the scaler holds is in nothing it writes or answers, whatever goes wrong."""

import logging

import pytest

from services.scaler.settings import Settings
from tests.services.scaler.lambda_endpoint import LambdaEndpoint, lambda_endpoint
from tests.services.scaler.running import TOKEN, run_scaler

PASSWORD = "correct-horse-battery"  # noqa: S105


def test_neither_token_nor_cache_password_is_told(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = tmp_path_factory.mktemp("scaler")
    cache = f"redis://user:{PASSWORD}@127.0.0.1:9/0"
    endpoint: LambdaEndpoint
    with lambda_endpoint() as endpoint, run_scaler(folder, endpoint, cache) as scaler:
        answers = [
            scaler.http.get("/readyz").text,
            scaler.http.get("/metrics").text,
            scaler.http.get("/openapi.json").text,
            scaler.http.post("/v1/jobs", json={"env_id": f"Bearer {TOKEN}", "seed": -1}).text,
            scaler.http.post("/v1/jobs", content=b"\xff").text,
        ]
        job_id = scaler.submit().job_id
        lease = scaler.lease()
        scaler.round(lease, 0)
        scaler.landed(job_id)
        scaler.finish(lease, status="failed", stop_reason="error", error="broken")
        answers += [scaler.http.get(f"/v1/jobs/{job_id}").text]
        events = str(endpoint.events)
    for text in (*answers, caplog.text, events):
        assert PASSWORD not in text
        assert f"Bearer {TOKEN}" not in text
    for path in folder.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes()
            assert TOKEN.encode() not in path.read_bytes()


def test_settings_do_not_show_their_secrets() -> None:
    settings = Settings.model_validate(
        {"token": TOKEN, "cache_url": f"redis://user:{PASSWORD}@host/0"}
    )
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert TOKEN not in text
        assert PASSWORD not in text


def test_half_a_character_is_refused_where_it_would_be_stored(
    tmp_path_factory: pytest.TempPathFactory, cache_url: str
) -> None:
    folder = tmp_path_factory.mktemp("scaler")
    with lambda_endpoint() as endpoint, run_scaler(folder, endpoint, cache_url) as scaler:
        scaler.submit()
        lease = scaler.lease()
        body = f'{{"lease_id": "{lease.lease_id}", "status": "failed", "stop_reason": "error",'
        body += '"error": "\\ud800"}'
        path, headers = f"/v1/jobs/{lease.job.job_id}/finish", {"Content-Type": "application/json"}
        answer = scaler.http.post(path, content=body.encode(), headers=headers)
        assert "Unicode" in answer.json()["detail"]
        assert answer.status_code == 422
        assert scaler.job(lease.job.job_id).status == "running", "it changed nothing"
