"""Files of a job elsewhere, fetched into a folder of runs."""

import socket
import threading
from pathlib import Path

import pytest

from nitro.afar.fetching import fetch, local_run, record_only, with_checkpoints
from nitro.client.client import NitroClient
from nitro.client.errors import NoAnswerError
from nitro.errors import CommandError
from nitro.runs.reading import read_run
from services.scaler.views.files import MOST_FILES
from shared.contracts.jobs import Job
from shared.contracts.views.files import ArtifactLink, ArtifactLinks
from tests.services.scaler.running import TOKEN, Scaler


def names(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in files} - {".fetched"}


def test_a_job_is_fetched_whole_and_then_only_what_changed(
    afar: Scaler, left: Job, tmp_path: Path
) -> None:
    told: list[str] = []
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        folder = fetch(client, left.job_id, tmp_path / "runs", tell=told.append)
        assert names(folder) == names(afar.runs_dir / left.job_id)
        assert read_run(folder).job == left
        assert len(told) == 4
        there = afar.runs_dir / left.job_id
        (there / "rounds.jsonl").write_text("\n")
        (there / "checkpoints" / "000002").rename(there / "checkpoints" / "000003")
        told.clear()
        fetch(client, left.job_id, tmp_path / "runs", tell=told.append)
    assert [line.split()[0] for line in told] == [
        "checkpoints/000003/policy.safetensors",
        "rounds.jsonl",
    ]
    assert names(folder) == names(there), "checkpoints that were dropped there go here, too"


def test_commands_fetch_what_they_need_by_themselves(
    afar: Scaler, left: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(CommandError, match="no run at"):
        local_run(left.job_id, runs, wanted=record_only)
    monkeypatch.setenv("NITRO_API_URL", str(afar.http.base_url))
    monkeypatch.setenv("NITRO_TOKEN", TOKEN)
    folder = local_run(left.job_id, runs, wanted=record_only)
    assert names(folder) == {"job.json", "rounds.jsonl"}
    again = local_run(left.job_id[:-2], runs, wanted=with_checkpoints)
    assert again == folder
    assert names(folder) == {
        "job.json",
        "rounds.jsonl",
        "checkpoints/000002/policy.safetensors",
    }
    with pytest.raises(CommandError, match=r"no run at .* nor has the API such a job"):
        local_run("none-1", runs, wanted=record_only)


@pytest.mark.parametrize("name", ["job.json", "checkpoints"])
def test_a_run_of_this_machine_is_never_written_over(
    afar: Scaler, left: Job, tmp_path: Path, name: str
) -> None:
    own = tmp_path / "runs" / left.job_id
    own.mkdir(parents=True)
    (own / name).write_text("mine")
    with (
        NitroClient(str(afar.http.base_url), TOKEN) as client,
        pytest.raises(CommandError, match="is a run of this machine"),
    ):
        fetch(client, left.job_id, tmp_path / "runs")
    assert names(own) == {name}


@pytest.mark.parametrize("job_id", ["..", "../other", ".", "", "a/b"])
def test_what_is_no_id_is_fetched_nowhere(afar: Scaler, tmp_path: Path, job_id: str) -> None:
    with (
        NitroClient(str(afar.http.base_url), TOKEN) as client,
        pytest.raises(CommandError, match="JOB_ID: .* is no id of a job"),
    ):
        fetch(client, job_id, tmp_path / "runs")


@pytest.mark.parametrize("name", ["../stolen", "/etc/stolen", "a/../../b", ".hidden", "a\\b", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(
    afar: Scaler, left: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        honest = client.artifacts(left.job_id)
        (job_file,) = (link for link in honest.files if link.name == "job.json")
        evil = ArtifactLink(**{**job_file.model_dump(), "name": name})
        links = ArtifactLinks(**{**dict(honest), "files": (job_file, evil)})
        monkeypatch.setattr(client, "artifacts", lambda _: links)
        with pytest.raises(CommandError, match="which no run can have"):
            fetch(client, left.job_id, tmp_path / "runs")
    assert not (tmp_path / "stolen").exists()


def test_a_job_with_more_files_than_a_list_holds_is_fetched_whole(
    afar: Scaler, left: Job, tmp_path: Path
) -> None:
    there = afar.runs_dir / left.job_id
    (there / "a").mkdir()
    for number in range(MOST_FILES):  # the record and the checkpoint are on the second page then
        (there / "a" / str(number)).touch()
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        folder = fetch(client, left.job_id, tmp_path / "runs", wanted=with_checkpoints)
        kept = {"job.json", "rounds.jsonl", "checkpoints/000002/policy.safetensors"}
        assert names(folder) == kept
        fetch(client, left.job_id, tmp_path / "runs", wanted=with_checkpoints)
    assert names(folder) == kept


def test_a_checkpoint_dropped_since_it_was_listed_is_passed_over(
    afar: Scaler, left: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = afar.runs_dir / left.job_id
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        stale = client.artifacts(left.job_id)
        (there / "checkpoints" / "000002").rename(there / "checkpoints" / "000003")
        lists = iter([stale, client.artifacts(left.job_id)])
        monkeypatch.setattr(client, "artifacts", lambda _: next(lists))
        folder = fetch(client, left.job_id, tmp_path / "runs")
    assert names(folder) == names(there)


def test_a_file_replaced_since_it_was_listed_is_fetched_as_it_is_now(
    afar: Scaler, left: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "checkpoints/000002/policy.safetensors"
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        stale = client.artifacts(left.job_id)
        (afar.runs_dir / left.job_id / policy).write_bytes(b"less")
        with monkeypatch.context() as patch:
            patch.setattr(client, "artifacts", lambda _: stale)
            folder = fetch(client, left.job_id, tmp_path / "runs")
    assert (folder / policy).read_bytes() == b"less"


def test_a_file_that_is_cut_on_its_way_is_no_file(afar: Scaler, left: Job) -> None:
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        links = client.artifacts(left.job_id)
    with socket.create_server(("127.0.0.1", 0)) as broken:
        cut = threading.Thread(target=answer_with_half, args=(broken,))
        cut.start()
        url = f"http://127.0.0.1:{broken.getsockname()[1]}"
        with (
            NitroClient(url, None) as client,
            pytest.raises(NoAnswerError, match=r"job\.json: cannot be fetched"),
        ):
            list(client.download(next(x for x in links.files if x.name == "job.json")))
        cut.join()


def answer_with_half(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")


@pytest.mark.parametrize("gone", ["the job", "the API"])
def test_what_was_fetched_is_used_once_its_job_or_api_is_gone(
    afar: Scaler,
    left: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gone: str,
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("NITRO_API_URL", str(afar.http.base_url))
    monkeypatch.setenv("NITRO_TOKEN", TOKEN)
    folder = local_run(left.job_id, runs, wanted=with_checkpoints)
    before = names(folder)
    if gone == "the job":
        folder = folder.rename(runs / "deleted-1")
    else:
        monkeypatch.setenv("NITRO_API_URL", "http://127.0.0.1:1")
    assert local_run(folder.name, runs, wanted=with_checkpoints) == folder
    assert names(folder) == before
    assert "as it was fetched before" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/jobs/a", "//127.0.0.1:1/v1/jobs/", "/x"])
def test_the_token_follows_no_link_that_leads_elsewhere(
    afar: Scaler, left: Job, tmp_path: Path, url: str
) -> None:
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        link = client.artifacts(left.job_id).files[0].model_copy(update={"url": url})
        with pytest.raises(CommandError, match="links to no file of a job"):
            list(client.download(link))


@pytest.mark.parametrize("url", ["http://[", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x"])
def test_a_link_that_leads_nowhere_is_an_error_in_words(
    afar: Scaler, left: Job, tmp_path: Path, url: str
) -> None:
    with NitroClient(str(afar.http.base_url), TOKEN) as client:
        (first, *_) = client.artifacts(left.job_id).files
        link = first.model_copy(update={"url": url, "presigned": True})
        with pytest.raises(CommandError, match=f"{first.name}: cannot be fetched"):
            list(client.download(link))
