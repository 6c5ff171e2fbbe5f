import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nitro.local.processes import ManagedProcess
from tests.nitro.process_table import alive, children, eventually

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
FAMILY = (
    sys.executable,
    "-c",
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(child.pid, flush=True); time.sleep(600)",
)
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)",
)

Make = Callable[[tuple[str, ...]], ManagedProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ManagedProcess] = []

    def build(command: tuple[str, ...]) -> ManagedProcess:
        process = ManagedProcess(
            "sleeper",
            command,
            env=dict(os.environ),
            log_path=tmp_path / f"{len(made)}.log",
            folder=tmp_path,
        )
        made.append(process)
        return process

    yield build
    for process in made:
        process.kill()


def started(process: ManagedProcess) -> int:
    process.start()
    return process.pid


def test_a_process_runs_in_its_own_group_until_it_is_asked_to_end(make: Make) -> None:
    process = make(SLEEP)
    pid = started(process)
    eventually(lambda: os.getpgid(pid) == pid)
    assert process.exit_code() is None
    process.terminate()
    process.wait(10)
    assert not alive(pid)
    assert process.exit_code() is not None


def test_a_process_that_does_not_listen_is_killed(make: Make) -> None:
    process = make(STUBBORN)
    pid = started(process)
    eventually(lambda: "deaf" in process.log_tail())
    process.terminate()
    process.wait(0.2)
    assert alive(pid)
    process.kill()
    assert not alive(pid)
    assert process.exit_code() == -signal.SIGKILL


def test_killing_reaches_the_processes_it_started(make: Make) -> None:
    process = make(FAMILY)
    started(process)
    eventually(lambda: process.log_tail() != "")
    grandchild = int(process.log_tail())
    assert alive(grandchild)
    process.kill()
    eventually(lambda: not alive(grandchild))


def test_a_process_starts_once_and_again_after_its_end(make: Make) -> None:
    process = make(SLEEP)
    first = started(process)
    with pytest.raises(RuntimeError, match=f"running already \\(pid {first}\\)"):
        process.start()
    process.kill()
    assert started(process) != first


def test_ending_what_never_started_does_nothing(make: Make) -> None:
    process = make(SLEEP)
    process.terminate()
    process.wait(1)
    process.kill()
    assert process.exit_code() is None


def test_the_log_keeps_what_a_failing_process_says_last(make: Make) -> None:
    process = make(
        (sys.executable, "-c", "print('first', flush=True); raise SystemExit('the reason')")
    )
    started(process)
    process.wait(10)
    assert process.exit_code() == 1
    assert process.log_tail(1) == "the reason"
    assert process.log_tail().splitlines()[0] == "first"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from nitro.local.processes import ManagedProcess\n"
        f"p = ManagedProcess('s', {SLEEP!r}, env=dict(os.environ),"
        f" log_path=Path({str(tmp_path / 'log')!r}), folder=Path({str(tmp_path)!r}))\n"
        "p.start()\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # Only once it has become the command has it asked the kernel.
        eventually(lambda: "tether" not in Path(f"/proc/{child}/cmdline").read_text())
        assert children(parent.pid) == {child}
        parent.kill()
    eventually(lambda: not alive(child))
