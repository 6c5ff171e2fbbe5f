"""The local system as a whole: what it refuses, and that it leaves nothing behind."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import redis

from nitro.client.client import NitroClient
from nitro.client.follow import follow
from nitro.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from nitro.local.plan import NAMES, LocalPlan, Ports, plan_processes
from nitro.local.state_folder import StateFolder
from nitro.local.system import LocalSystem, LocalSystemError
from services.emulator.settings import Settings as EmulatorSettings
from services.learner.settings import LearnerSettings
from services.scaler.settings import Settings as ScalerSettings
from shared.contracts.job_spec import JobSpec
from tests.nitro.process_table import alive, children, eventually
from tests.patience import ANSWER_S


def a_plan(tmp_path: Path, *, cache_url: str | None = None) -> LocalPlan:
    return LocalPlan(
        state=StateFolder(tmp_path),
        lambda_token="token-of-the-emulator",
        cache_password="password",
        ports=Ports(cache=1001, invoke=1002, learners=(1003,), api=1004),
        processes=3,
        max_concurrency=2000,
        cache_url=cache_url,
    )


def variables(plan: LocalPlan, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [key for key in os.environ if key.startswith("NITRO_")]:
        monkeypatch.delenv(variable)
    chosen = {process.name: process for process in plan_processes(plan)}[name]
    for variable, value in chosen.env.items():
        monkeypatch.setenv(variable, value)


def test_the_parts_read_the_settings_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(tmp_path)
    variables(plan, "emulator", monkeypatch)
    emulator = EmulatorSettings()
    variables(plan, "scaler", monkeypatch)
    scaler = ScalerSettings()
    variables(plan, "learner", monkeypatch)
    learner = LearnerSettings()

    assert (emulator.host, scaler.host, learner.host) == ("127.0.0.1",) * 3
    assert (emulator.port, scaler.port, learner.learner_port) == (1002, 1004, 1003)
    assert learner.scaler_url == plan.api_url
    assert scaler.lambda_endpoint_url == "http://127.0.0.1:1002"
    assert scaler.lambda_token == emulator.token
    assert scaler.lambda_function == emulator.function_name
    assert scaler.lambda_qualifier in emulator.aliases
    assert scaler.lambda_memory_mb == emulator.memory_mb == 1024
    assert scaler.lambda_timeout_s == 60  # what AWS is priced by
    assert emulator.timeout_s == 600  # as long as a slow simulator may take here
    assert emulator.processes == 3
    assert emulator.concurrency_limit == 2000
    caches = {
        scaler.cache_url.get_secret_value(),
        learner.cache_url.get_secret_value(),
        emulator.variables["NITRO_CACHE_URL"],
    }
    assert caches == {"redis://:password@127.0.0.1:1001/0"}
    assert scaler.runs_dir == learner.runs_dir == tmp_path
    assert scaler.token_file == learner.token_file == plan.state.token_path
    assert scaler.ledger_clock == "projected"


def test_queued_actors_are_given_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(a_plan(tmp_path), "scaler", monkeypatch)
    scaler = ScalerSettings()
    # 64 actors on two processes take turns 32 times; on Lambda they all start at once.
    assert scaler.lambda_read_timeout_s >= 600
    assert 2 * scaler.lambda_timeout_s + scaler.deadline_slack_s >= scaler.lambda_read_timeout_s


def test_a_redis_of_ones_own_replaces_the_embedded_server(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, cache_url="redis://elsewhere:6379/1")
    assert [process.name for process in plan_processes(plan)] == ["emulator", "scaler", "learner"]
    assert plan.redis_url == "redis://elsewhere:6379/1"


def test_it_is_up_and_closed_to_strangers(system: LocalSystem, runs_dir: Path) -> None:
    assert system.names == NAMES
    assert httpx.get(f"{system.api_url}/readyz", timeout=ANSWER_S).status_code == 200
    assert httpx.get(f"{system.api_url}/v1/jobs", timeout=ANSWER_S).status_code == 401
    assert stat.S_IMODE(system.token_path.stat().st_mode) == 0o600
    assert (runs_dir / ".nitro" / "api_url").read_text() == system.api_url
    secrets = (system.token, system.lambda_token, urlsplit(system.cache_url).password or "")
    assert min(map(len, secrets)) >= 32
    for name in NAMES:
        for argument in Path(f"/proc/{system.pid(name)}/cmdline").read_text().split("\0"):
            assert not any(secret in argument for secret in secrets)


def test_other_users_find_its_folder_closed_and_cache_and_emulator_too(
    system: LocalSystem, runs_dir: Path
) -> None:
    state = runs_dir / ".nitro"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    for path in state.glob("nitro.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert (state / "nitro.db").exists()
    address = urlsplit(system.cache_url)
    with (
        redis.Redis(host=address.hostname or "", port=address.port or 0) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    faults = f"{system.lambda_url}/emulator/faults"
    assert httpx.put(faults, json={"crash_next": 1}, timeout=ANSWER_S).status_code == 403
    allowed = {"Authorization": f"Bearer {system.lambda_token_path.read_text()}"}
    assert httpx.put(faults, json={}, headers=allowed, timeout=ANSWER_S).status_code == 200


def test_a_second_one_for_all_on_a_folder_is_refused(system: LocalSystem, runs_dir: Path) -> None:
    second = LocalSystem(runs_dir, lasting=True)
    with pytest.raises(CommandError, match="is up on") as caught, second:
        pass
    assert caught.value.exit_code == EXIT_USAGE
    assert system.api_url in str(caught.value)
    system.check()
    assert system.token_path.exists()


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with (
            pytest.raises(CommandError, match=f"--port: port {port}"),
            LocalSystem(tmp_path / "runs", api_port=port),
        ):
            pass
    assert not (tmp_path / "runs").exists()


def test_a_process_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    before = children(os.getpid())
    with (
        pytest.raises(LocalSystemError, match="the scaler ended with code 2") as caught,
        LocalSystem(tmp_path, environment={"scaler": {"NITRO_PRICE_TABLE": "nonsense"}}),
    ):
        pass
    assert caught.value.exit_code == EXIT_FAILED
    assert "nonsense" in str(caught.value)
    assert str(tmp_path / ".nitro" / "logs" / "scaler.log") in str(caught.value)
    assert children(os.getpid()) == before


def test_a_dead_learner_is_reported_and_its_job_goes_on_after_a_restart(
    system: LocalSystem, client: NitroClient, endless_job: JobSpec
) -> None:
    job_id = client.submit(endless_job).job_id
    looks = follow(client, job_id, check=system.check, every_s=0.05)
    for snapshot in looks:
        if snapshot.finished_rounds:
            break
    first = system.pid("learner")
    system.kill("learner")
    with pytest.raises(LocalSystemError, match=r"the learner ended with code -9.*learner\.log"):
        list(looks)
    client.stop(job_id)
    system.restart("learner")
    assert system.pid("learner") != first
    *_, last = follow(client, job_id, check=system.check, every_s=0.05)
    assert last.job.status == "stopped"
    assert last.finished_rounds >= snapshot.finished_rounds


def test_nothing_is_left_after_its_end_and_packages_called_like_ours_hide_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("services", "shared", "functions", "settings"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the user\\'s {name}')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = children(os.getpid())
    with LocalSystem(tmp_path, processes=2) as running:
        mine = children(os.getpid()) - before
        assert {running.pid(name) for name in NAMES} <= mine
        assert len(mine) >= len(NAMES) + 2  # the actors
        running.wait_ready()
    eventually(lambda: not any(alive(pid) for pid in mine))
    for secret in ("token", "lambda_token", "cache.conf"):
        assert not (tmp_path / ".nitro" / secret).exists()
    assert not (tmp_path / ".nitro" / "api_url").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_nothing_is_left_when_its_owner_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from nitro.local.system import LocalSystem\n"
        f"with LocalSystem(Path({str(tmp_path)!r}), processes=2) as system:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        family = children(owner.pid)
        assert len(family) >= len(NAMES) + 2
        owner.kill()
    eventually(lambda: not any(alive(pid) for pid in family))
    state = StateFolder(tmp_path)
    state.acquire()  # the lock died with its holder
    state.release()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("NOT TESTED: only root can mount a disk small enough to fill")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def _fill(folder: Path) -> None:
    """Write until the disk is full to the last byte."""
    with (folder / "filling").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def _train_until_full(disk: Path, runs_dir: Path, spec: JobSpec) -> None:
    """Fill the disk once a job has finished a round, and look at the job once more."""
    with LocalSystem(runs_dir) as system, NitroClient(system.api_url, system.token) as client:
        full = False
        for snapshot in follow(client, client.submit(spec).job_id, check=system.check):
            assert not full, "nobody noticed"
            if snapshot.finished_rounds:
                _fill(disk)
                full = True


def test_a_disk_that_fills_up_while_a_job_runs_is_told_at_once_with_the_folder(
    small_disk: Path, endless_job: JobSpec
) -> None:
    runs_dir = small_disk / "runs"
    with pytest.raises(CommandError) as caught:
        _train_until_full(small_disk, runs_dir, endless_job)
    assert caught.value.exit_code == EXIT_FAILED
    for words in (str(runs_dir), "No space left on device"):
        assert words in str(caught.value)
