"""Every command that the documents show is typed into a shell; only how long it trains is cut.

What needs AWS, Docker or hours is marked so in its document, and not run here.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from nitro.client.client import NitroClient
from nitro.client.connection import connect
from nitro.local.ports import free_ports
from shared.artifacts.store import JOB_FILE
from shared.contracts.job_spec import JobSpec
from tests.documents import DOCUMENTS, ROOT, commands
from tests.nitro.conftest import TINY

pytestmark = pytest.mark.documents

PATIENCE_S = 300.0
TYPED = {
    command.words: f"{command.page.relative_to(ROOT)}: {shlex.join(command.words)}"
    for page in DOCUMENTS
    for command in commands(page)
    if command.whole and not command.marker
}
FINISHED = {
    "hopper-v5-3f2a": "Hopper-v5",
    "hopper-v5-81c0": "Hopper-v5",
    "cartpole-v1-3f2a": "CartPole-v1",
    "cartpole-v1-81c0": "CartPole-v1",
}
"""The documents' runs, and what they trained on."""
UNTIL = {
    "tensorboard": r"(http://\S+) \(Press CTRL\+C to quit\)",
    "nitro up": r"(http://\S+)",
}
"""Commands that serve until they are ended, and where they say so."""
NEEDS_ACTIVE = ("scale", "stop", "resume")
"""What `nitro jobs` does to a job that has not come to its end."""


@dataclass(frozen=True)
class Desk:
    """A folder to type in, with a local system that is up on its runs."""

    folder: Path
    environment: dict[str, str]
    client: NitroClient
    runs: dict[str, str]
    """Job ids by the names that documents give to runs."""

    def type(self, *words: str) -> str:
        """Type a command, and return what it says; it must succeed."""
        done = subprocess.run(
            ["bash", "-c", shlex.join(words)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout


@contextmanager
def serving(folder: Path, environment: dict[str, str], pattern: str, *words: str) -> Iterator[str]:
    """Start a command that goes on, wait for the address it tells, and end it."""
    told, found = threading.Event(), []
    said: list[str] = []

    def read(stream: IO[str]) -> None:
        for line in stream:
            said.append(line)
            if match := re.search(pattern, line):
                found.append(match[1])
                told.set()
        told.set()

    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=read, args=(process.stdout,))
        reader.start()
        told.wait(PATIENCE_S)
        try:
            assert found, "".join(said)
            yield found[0]
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
            reader.join()
    assert "Traceback" not in "".join(said)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "examples", folder / "examples")
    binaries = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([binaries, os.environ["PATH"]]),
        "PYTHONPATH": str(folder / "examples" / "custom_env"),
    }
    up = ("nitro", "up", "--port", str(free_ports(1)[0]))
    with (
        serving(folder, environment, UNTIL["nitro up"], *up),
        connect(None, folder / "runs") as client,
    ):
        desk = Desk(folder=folder, environment=environment, client=client, runs={})
        for name, env_id in FINISHED.items():
            desk.type("nitro", "train", env_id, "--rounds", "2", "--eval-episodes", "2")
            desk.runs[name] = newest(folder / "runs")
        yield desk


def newest(runs: Path) -> str:
    return max(runs.glob(f"*/{JOB_FILE}"), key=lambda path: path.stat().st_mtime_ns).parent.name


@pytest.mark.parametrize("words", TYPED, ids=TYPED.values())
def test_a_command_of_the_documents_does_its_work(words: tuple[str, ...], desk: Desk) -> None:
    text = shlex.join(words)
    if server := next((name for name in UNTIL if text.startswith(name)), None):
        if server == "nitro up":
            return  # it is up: the fixture has typed it
        more = ("--port", str(free_ports(1)[0]))
        with serving(desk.folder, desk.environment, UNTIL[server], *words, *more) as address:
            assert urllib.request.urlopen(address, timeout=PATIENCE_S).status == 200
    elif words[:2] == ("nitro", "jobs") and words[2] in NEEDS_ACTIVE:
        with active(desk.client, stopped=words[2] == "resume") as job_id:
            assert job_id in desk.type(*words[:3], job_id, *words[4:])
    else:
        desk.type(*shortened(words, desk))


def shortened(words: tuple[str, ...], desk: Desk) -> list[str]:
    """Return the command with real runs in it, training for two rounds instead of hundreds."""
    typed = [renamed(word, desk) for word in words]
    if words[:2] == ("nitro", "train") and "--help" not in words:
        # A resumed job has two rounds behind it, or as many as the command before gave it.
        more = 8 if "--fresh-schedule" in words else 6 if "--rounds" in words else 4
        typed = without(typed, "--total-steps", "--rounds")
        typed += ["--rounds", str(more if "--resume" in words else 2)]
        if "paper" in words:  # its fragments have 1,024 steps, of up to 64 actors
            typed += ["--steps-per-actor", "64"]
    if words[:3] == ("nitro", "scheduler", "train"):
        typed = [*without(typed, "--rounds"), "--rounds", "2", "--episodes", "2"]
    if words[:3] == ("nitro", "experiment", "run"):
        typed += ["--out", "results"]
    if "--environment-package" in words and words[1] != "check-env":
        typed += ["--runs-dir", "own"]  # a system with this package, not the one that is up
    if words[0] == "pip":
        typed += ["--dry-run", "--no-index", "--no-deps", "--no-build-isolation"]
    return typed


def renamed(word: str, desk: Desk) -> str:
    if word == "JOB_ID":
        return newest(desk.folder / "own")
    for name, job_id in desk.runs.items():
        word = word.replace(name, job_id)
    return word


def without(words: list[str], *options: str) -> list[str]:
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in options and before not in options
    ]


@contextmanager
def active(client: NitroClient, *, stopped: bool) -> Iterator[str]:
    """A job that trains until it is stopped; it is stopped at the end whatever became of it."""
    body = {**TINY, "actors": {"min": 1, "max": 64}, "stop": {"max_rounds": 100_000}}
    spec = JobSpec.model_validate(body)
    job_id = client.submit(spec).job_id
    try:
        wait_for(client, job_id, "running")
        if stopped:
            client.stop(job_id)
            wait_for(client, job_id, "stopped")
        yield job_id
    finally:
        if client.get(job_id).status in {"queued", "running"}:
            client.stop(job_id)


def wait_for(client: NitroClient, job_id: str, status: str) -> None:
    give_up_at, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while client.get(job_id).status != status:
        assert time.monotonic() < give_up_at, client.get(job_id).status
        pause.wait(0.05)
