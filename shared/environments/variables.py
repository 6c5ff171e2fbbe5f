"""The variables of the process that a simulator reads: a job's own, and which ones it read.

A simulator that reads `SIM_MODE` is another environment where that is another value. A job can
bring its own values. Of the others is kept what the simulator read, so that a difference between
where it was trained and where it is evaluated can be told.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar

from shared.service.secret_names import looks_secret

MAX_READ = 16
"""Variables of which the values are kept."""
_MAX_VALUE = 200
_EVERYWHERE = frozenset(
    (
        *("COLUMNS", "DISPLAY", "HOME", "HOSTNAME", "LINES", "LOGNAME", "PATH", "PWD", "SHELL"),
        *("TEMP", "TERM", "TMP", "TMPDIR", "USER"),
    )
)
"""They differ from place to place, and simulators that read them know it."""
_LIBRARIES = frozenset(
    (
        *("OpenGL", "PIL", "ale_py", "awslambdaric", "functions", "glfw", "gymnasium", "imageio"),
        *(
            "learning",
            "matplotlib",
            "mujoco",
            "nitro",
            "numpy",
            "pydantic",
            "pygame",
            "redis",
            "rich",
        ),
        *("services", "shared", "torch", "typer", "zstandard"),
    )
)
_NOT_SIMULATORS = _LIBRARIES | sys.stdlib_module_names


_PLAIN = type(os.environ)


class _Noting(type(os.environ)):  # type: ignore[misc] # typeshed has it as an instance
    """`os.environ` that remembers which variables a simulator's code reads one by one."""

    def __getitem__(self, name: str) -> str:
        try:
            value: str | None = super().__getitem__(name)
        except KeyError:
            value = None
        if name in _Noted.listed:
            _Noted.listed.discard(name)  # a copy of all of them says nothing of any
        elif _reader() not in _NOT_SIMULATORS:
            _Noted.read.setdefault(name, value)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = list(super().__iter__())
        _Noted.listed.update(names)
        return iter(names)


Variables = dict[str, str | None]
"""Names and values; None: not set."""


class _Noted:
    """Where reads are noted now, and which names were listed and not looked up since."""

    read: ClassVar[Variables] = {}
    listed: ClassVar[set[str]] = set()


AT_IMPORT: Variables = {}
"""Variables that simulators read at import, once per process."""
_before: Variables = {}
"""Values of a job's variables in this process before the job set them."""


@contextlib.contextmanager
def noting_reads(read: Variables) -> Iterator[None]:
    """Note the variables that simulators read in the body, as they first find them."""
    _Noted.read, _Noted.listed = read, set()
    os.environ.__class__ = _Noting
    try:
        yield
    finally:
        os.environ.__class__ = _PLAIN


def worth_telling(read: Mapping[str, str | None]) -> Variables:
    """Return what was read, also `AT_IMPORT`, without secrets and what differs everywhere."""
    found = {
        name: None if value is None else value[:_MAX_VALUE]
        for name, value in {**AT_IMPORT, **read}.items()
        if name not in _EVERYWHERE and not looks_secret(name, value or "")
    }
    return dict(list(found.items())[:MAX_READ])


def set_variables(wanted: Mapping[str, str]) -> None:
    """Set a job's variables in this process, in place of those of the job before."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
    for name, text in wanted.items():
        _before[name] = os.environ.get(name)
        os.environ[name] = text


def variable_differences(read: Mapping[str, str | None], own: Mapping[str, str]) -> tuple[str, ...]:
    """Say which variables a simulator finds here with another value than where actors run.

    Args:
        read: What it read there.
        own: The job's own variables, which are set wherever it runs.

    Returns:
        One line a variable, without values: those of a shell are not for everyone to see.
    """
    found = []
    for name, there in read.items():
        here = own.get(name, os.environ.get(name))
        if (None if here is None else here[:_MAX_VALUE]) != there:
            found.append(f"{name} {_difference(here, there)} where actors run")
    return tuple(found)


def _difference(here: str | None, there: str | None) -> str:
    if here is None:
        return "is not set here, but"
    return "is set here, but not" if there is None else "has another value here than"


def _reader() -> str:
    """Return the package of the code that reads a variable, past the standard library."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in ("os", "collections", "_collections_abc"):
            return name
        frame = frame.f_back
    return ""
