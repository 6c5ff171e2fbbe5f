"""A process that loses a thread it cannot live without."""

import subprocess
import sys

from shared.service.threads import BROKEN

_PROGRAM = """
import threading
from shared.service.threads import essential_thread

def work():
    raise RuntimeError("the disk is gone")

threading.Thread(target=threading.Event().wait).start()
essential_thread("worker", work).start()
threading.Event().wait()
"""


def test_a_process_ends_with_the_reason_though_other_threads_wait_for_ever() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == BROKEN
    assert ended.stderr.splitlines()[-1] == (
        "the process ends, as its thread worker broke: RuntimeError: the disk is gone"
    )
