"""A process that loses a thread, or a task, that it cannot live without."""

import subprocess
import sys

import pytest

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
_ON_A_LOOP = """
import asyncio
from shared.service.threads import essential_task

async def work():
    raise RuntimeError("the disk is gone")

async def main():
    waiting = asyncio.create_task(asyncio.Event().wait())
    task = essential_task("worker", work())
    await waiting

asyncio.run(main())
"""


@pytest.mark.parametrize(("program", "kind"), [(_PROGRAM, "thread"), (_ON_A_LOOP, "task")])
def test_a_process_ends_with_the_reason_though_others_wait_for_ever(
    program: str, kind: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == BROKEN
    assert ended.stderr.splitlines()[-1] == (
        f"the process ends, as its {kind} worker broke: RuntimeError: the disk is gone"
    )
