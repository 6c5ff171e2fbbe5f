"""Threads and tasks a process cannot live without: if one breaks, the process ends and says why."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine

_LOG = logging.getLogger(__name__)
BROKEN = 1
"""Exit status of a process that has lost a thread."""


def _end_process(why: str) -> None:
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    logging.shutdown()
    # Other threads may wait for what will never come now.
    os._exit(BROKEN)


def essential_thread(
    name: str, run: Callable[[], object], *, end: Callable[[str], object] = _end_process
) -> threading.Thread:
    """Return a thread that is not started yet; the process ends if `run` raises.

    Args:
        name: For messages.
        run: What the thread does. It may return: then the thread is done.
        end: Ends the process, and says the reason it is given on standard error.
    """

    def guarded() -> None:
        try:
            run()
        except Exception as error:
            _LOG.exception("the thread %s broke", name)
            end(f"the process ends, as its thread {name} broke: {type(error).__name__}: {error}")

    return threading.Thread(target=guarded, name=name, daemon=True)


def essential_task(
    name: str, run: Coroutine[None, None, None], *, end: Callable[[str], object] = _end_process
) -> asyncio.Task[None]:
    """Return a task of the running loop; the process ends if it raises.

    Args:
        name: For messages.
        run: What the task does. It may return or be cancelled: then the task is done.
        end: Ends the process, and says the reason it is given on standard error.
    """

    async def guarded() -> None:
        try:
            await run
        except Exception as error:
            _LOG.exception("the task %s broke", name)
            end(f"the process ends, as its task {name} broke: {type(error).__name__}: {error}")

    return asyncio.create_task(guarded(), name=name)
