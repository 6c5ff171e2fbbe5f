"""How a service ends."""

import signal
import subprocess
import sys

import pytest

_ENDING = """
import os
from shared.service.serving import keep_exit_code

keep_exit_code()

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, {number})

last = Last()  # goes when the interpreter has taken handlers in Python away
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_interpreter_ends_leaves_the_exit_status(number: signal.Signals) -> None:
    code = _ENDING.format(number=int(number))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
