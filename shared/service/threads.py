"""Threads that a process cannot live without: if one breaks, the process ends and says why."""

import logging
import os
import sys
import threading
from collections.abc import Callable

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
