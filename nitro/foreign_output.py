"""Redirects prints of environments and their libraries from standard output to standard error.

Whoever reads `--json`, or a table, wants nothing else there. Python code prints through
`sys.stdout`, libraries through the process's file descriptor 1, and both may do so whenever they
like, also when the process ends.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Take standard output for ourselves, until the process ends: for a program's entry point.

    In the body `sys.stdout` is where it was; whatever else writes to descriptor 1 reaches standard
    error. Afterwards `sys.stdout` is standard error as well.
    """
    theirs = sys.stdout
    if not isinstance(theirs, io.TextIOWrapper):
        yield  # there is none, or a program that has us inside has put its own there
        return
    theirs.flush()
    ours = io.TextIOWrapper(
        os.fdopen(os.dup(_STDOUT), "wb"),
        encoding=theirs.encoding,
        errors="replace",  # not every terminal has every character, and none is worth a job
        line_buffering=theirs.line_buffering,
        write_through=theirs.write_through,
    )
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = ours
    try:
        yield
    finally:
        sys.stdout = theirs
        with contextlib.suppress(BrokenPipeError):  # whoever read has read enough
            ours.close()


@contextlib.contextmanager
def foreign_code() -> Iterator[None]:
    """Send what Python code prints in the body to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
