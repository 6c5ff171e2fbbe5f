"""Essential threads and tasks: if one fails, the process ends with the reason."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine

_LOG = logging.getLogger(__name__)
BROKEN = 1
"""Exit status of a process with a failed thread."""


def _end_process(why: str) -> None:
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    logging.shutdown()
    # Other threads may wait forever for the failed one.
    os._exit(BROKEN)


def essential_thread(
    name: str, run: Callable[[], object], *, end: Callable[[str], object] = _end_process
) -> threading.Thread:
    """Return an unstarted thread; the process ends if `run` raises.

    Args:
        name: For messages.
        run: The thread's function. It may return, which ends the thread.
        end: Ends the process, and writes the given reason to standard error.
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
        run: The task's coroutine. It may return or be cancelled, which ends the task.
        end: Ends the process, and writes the given reason to standard error.
    """

    async def guarded() -> None:
        try:
            await run
        except Exception as error:
            _LOG.exception("the task %s broke", name)
            end(f"the process ends, as its task {name} broke: {type(error).__name__}: {error}")

    return asyncio.create_task(guarded(), name=name)
