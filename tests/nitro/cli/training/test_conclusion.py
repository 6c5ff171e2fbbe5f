"""What `nitro train` says at its end, of a job that the real system has trained."""

import io
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from nitro.cli.training.conclusion import conclude
from nitro.client.client import NitroClient
from nitro.client.follow import follow
from nitro.hints import Place
from nitro.local.access import Api
from shared.contracts.job_spec import JobSpec


def test_the_end_shows_picture_film_and_what_to_type_next(
    client: NitroClient, runs_dir: Path, tiny_job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = client.submit(tiny_job).job_id
    *_, last = follow(client, job_id, check=lambda: None)
    told, stdout = io.StringIO(), io.StringIO()

    def concluded(*, as_json: bool) -> int:
        api = Api(client=client, place=Place(runs_dir=runs_dir))
        console = Console(file=told, width=300)
        return conclude(last, api, as_json=as_json, console=console, stdout=stdout)

    folder = runs_dir / job_id
    assert concluded(as_json=True) == 0
    assert stdout.getvalue().startswith("{")
    assert not (folder / "videos").exists()
    assert concluded(as_json=False) == 0
    film = folder / "videos" / "policy-000002.gif"
    for made in (film, folder / "plots" / "run.png"):
        assert str(made) in told.getvalue()
    with Image.open(film) as gif:
        assert gif.format == "GIF"
    assert f"nitro evaluate {job_id} --episodes 100 --runs-dir {runs_dir}" in told.getvalue()
    assert f"nitro train --resume {job_id} --rounds 4 --runs-dir {runs_dir}" in told.getvalue()

    told.truncate(0)
    monkeypatch.chdir(runs_dir)
    monkeypatch.setitem(sys.modules, "nitro.runs.evaluate", None)  # as if Pillow were missing
    assert concluded(as_json=False) == 0
    assert "no film: " in told.getvalue()
    assert f" {job_id}/plots/run.png" in told.getvalue()
