"""A learner that cannot work says so, and so does all that waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from prometheus_client import CollectorRegistry

from nitro.local.ports import free_ports
from nitro.runs.summary import wait_text
from services.learner.app import build_worker, create_app
from services.learner.record.tracking import LearnerMetrics
from services.learner.settings import LearnerSettings
from services.scaler.capacity import learners_heard
from shared.artifacts.local import LocalArtifacts
from shared.contracts.jobs import Job
from tests.nitro.process_table import eventually
from tests.patience import ANSWER_S
from tests.services.learner.test_app import running
from tests.services.scaler.jobs.leasing import add_job
from tests.services.scaler.lambda_endpoint import lambda_endpoint
from tests.services.scaler.running import TOKEN, Scaler, run_scaler


@pytest.fixture
def scaler(tmp_path: Path, cache_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scaler]:
    monkeypatch.setattr(learners_heard, "SILENT_S", 0.5)
    with (
        lambda_endpoint() as lambdas,
        run_scaler(tmp_path, lambdas, cache_url) as running_scaler,
    ):
        yield running_scaler


@contextmanager
def learner(runs_dir: Path, **settings: object) -> Iterator[httpx.Client]:
    """Run a learner in this process; yield a client of its endpoints."""
    registry = CollectorRegistry()
    worker = build_worker(
        LearnerSettings.model_validate(
            {"learner_id": "one", "scaler_patience_s": 0.2, "device": "cpu", **settings}
        ),
        LocalArtifacts(runs_dir),
        LearnerMetrics(registry),
        torch.device("cpu"),
        None,
    )
    with (
        running(create_app(worker, registry)) as url,
        httpx.Client(base_url=url, timeout=ANSWER_S, trust_env=False) as client,
    ):
        yield client


def missing(client: httpx.Client) -> dict[str, str]:
    answer = client.get("/readyz")
    assert (answer.status_code == 200) == (answer.json()["status"] == "ready")
    found: dict[str, str] = answer.json().get("missing", {})
    return found


def told(reason: str, look: Callable[[], dict[str, str]], name: str) -> bool:
    return reason in look().get(name, "")


def waiting(scaler: Scaler) -> str:
    """Say why the job waits; empty if it does not."""
    job: Job = scaler.job("job")
    return "" if job.waits_for is None else wait_text(job.waits_for)


def problems(scaler: Scaler) -> dict[str, str]:
    found: dict[str, str] = scaler.http.get("/v1/system").json()["problems"]
    return found


def test_it_is_ready_once_scaler_and_cache_have_answered(
    scaler: Scaler, cache_url: str, tmp_path: Path
) -> None:
    url = str(scaler.http.base_url)
    with learner(tmp_path, scaler_url=url, token=TOKEN, cache_url=cache_url) as client:
        eventually(lambda: missing(client) == {})


@pytest.mark.parametrize(
    ("fault", "part", "reason", "waits_for"),
    [
        ("token", "scaler", "check NITRO_TOKEN", "none asks for work"),
        ("address", "scaler", "is NITRO_SCALER_URL right?", "none asks for work"),
        ("password", "cache", "NITRO_CACHE_URL is right", "one says: trajectory cache at"),
    ],
)
def test_what_keeps_it_from_work_shows_wherever_somebody_waits(
    scaler: Scaler,
    cache_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    part: str,
    reason: str,
    waits_for: str,
) -> None:
    (nobody,) = free_ports(1)
    settings = {"scaler_url": str(scaler.http.base_url), "token": TOKEN, "cache_url": cache_url}
    faulty = {
        "token": {"token": "wrong"},
        "address": {"scaler_url": f"http://127.0.0.1:{nobody}"},
        "password": {"cache_url": cache_url.replace("://", "://:hush@")},
    }
    scaler.call(add_job(scaler.parts.book, "job", learner="cpu"))
    scaler.parts.capacity.reconcile()
    with learner(tmp_path, **{**settings, **faulty[fault]}) as client:
        eventually(lambda: told(reason, lambda: missing(client), part))
        # Until the scaler has heard of the learner, the job waits for one that asks for work.
        eventually(lambda: waits_for in waiting(scaler))
        eventually(lambda: waits_for in problems(scaler).get("learners", ""))
        seen = problems(scaler)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert any(reason in str(vars(record).get("why")) for record in warnings)
    assert "hush" not in f"{seen}{caplog.text}"
