"""How the end of a framework's script is told, with processes that really end so."""

import os
import signal
import subprocess
import sys

import pytest

from experiments.frameworks.cells import ending


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (signal.SIGKILL, "was ended by SIGKILL; Linux does that when memory runs out"),
        (signal.SIGSEGV, "was ended by SIGSEGV"),
    ],
)
def test_a_signal_is_named_as_it_leaves_no_traceback(sent: signal.Signals, said: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.kill(process.pid, sent)
    process.communicate()
    assert ending(process.returncode).startswith(said)


def test_a_code_is_told_as_it_is() -> None:
    assert ending(3) == "failed with code 3"
