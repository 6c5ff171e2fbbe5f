"""Calls on threads: bounded, ended where that counts, and left behind at the end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from services.scaler.off_loop import OffLoop

_STUCK = """
import asyncio, threading
from services.scaler.off_loop import OffLoop

async def main():
    threads = OffLoop("silent", 2)
    waiting = asyncio.ensure_future(threads.run(threading.Event().wait))
    await asyncio.sleep(0.1)
    threads.close()

asyncio.run(main())
"""


async def test_a_call_runs_to_its_end_however_often_its_waiter_is_cancelled() -> None:
    threads, begun, go_on = OffLoop("test", 1), threading.Event(), threading.Event()

    def write() -> bool:
        begun.set()
        return go_on.wait()

    waiting = asyncio.create_task(threads.run_to_its_end(write))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        waiting.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    threads.close()


async def test_no_more_calls_run_at_a_time_than_there_are_threads() -> None:
    threads, go_on = OffLoop("test", 2), threading.Event()
    running: list[int] = []
    begun = threading.Semaphore(0)

    def call(number: int) -> int:
        running.append(number)
        begun.release()
        go_on.wait()
        return number

    calls = [asyncio.create_task(threads.run(call, number)) for number in range(5)]
    for _ in range(2):
        assert await asyncio.to_thread(begun.acquire, timeout=60.0)
    assert not await asyncio.to_thread(begun.acquire, timeout=0.1)
    assert sorted(running) == [0, 1]
    go_on.set()
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
    threads.close()


async def test_what_a_call_raises_is_raised_and_the_thread_goes_on() -> None:
    threads = OffLoop("test", 1)
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "none")
    assert await threads.run(int, "1") == 1
    threads.close()


async def test_after_the_end_nothing_begins_and_what_waits_is_cancelled() -> None:
    threads, begun, go_on = OffLoop("test", 1), threading.Event(), threading.Event()

    def call() -> str:
        begun.set()
        go_on.wait()
        return "done"

    first = asyncio.create_task(threads.run(call))
    second = asyncio.create_task(threads.run(call))
    await asyncio.to_thread(begun.wait)
    threads.close()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    assert await first == "done"
    with pytest.raises(RuntimeError, match="are closed"):
        await threads.run(call)


def test_a_process_ends_though_a_server_never_answers() -> None:
    subprocess.run([sys.executable, "-c", _STUCK], check=True, timeout=60)
