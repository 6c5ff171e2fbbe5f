"""A scaler on real sockets with a job in it, as commands elsewhere find it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nitro.runs.reading import read_job
from shared.contracts.jobs import Job
from tests.nitro.synthetic_run import job as synthetic_job
from tests.services.scaler.lambda_endpoint import lambda_endpoint
from tests.services.scaler.running import Scaler, run_scaler


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without a login, and nothing of ours in the environment."""
    for name in ("NITRO_API_URL", "NITRO_TOKEN", "NITRO_TOKEN_FILE", "NITRO_SIGN_FOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def afar(cache_url: str, tmp_path: Path) -> Iterator[Scaler]:
    """A scaler with its own folder."""
    folder = tmp_path / "afar"
    folder.mkdir()
    with lambda_endpoint() as endpoint, run_scaler(folder, endpoint, cache_url) as scaler:
        yield scaler


@pytest.fixture
def left(afar: Scaler) -> Job:
    """A job whose learner has left files."""
    job_id = afar.submit().job_id
    folder = afar.runs_dir / job_id
    (folder / "checkpoints" / "000002").mkdir(parents=True)
    (folder / "job.json").write_text(synthetic_job(job_id=job_id).model_dump_json())
    (folder / "rounds.jsonl").write_text("")
    (folder / "checkpoints" / "000002" / "policy.safetensors").write_bytes(b"weights")
    (folder / "plots").mkdir()
    (folder / "plots" / "run.png").write_bytes(b"png")
    return read_job(folder)
