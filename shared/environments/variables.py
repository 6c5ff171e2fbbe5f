"""Environment variables that a simulator reads: values set by the job, and a record of reads.

A simulator that reads `SIM_MODE` is a different environment for each of its values. A job can set
its own values. For all other variables the values that the simulator read are recorded, so that a
difference between training and evaluation can be reported.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar

from shared.service.secret_names import looks_secret

MAX_READ = 16
"""Most variables whose values are recorded."""
_MAX_VALUE = 200
_EVERYWHERE = frozenset(
    (
        *("COLUMNS", "DISPLAY", "HOME", "HOSTNAME", "LINES", "LOGNAME", "PATH", "PWD", "SHELL"),
        *("TEMP", "TERM", "TMP", "TMPDIR", "USER"),
    )
)
"""Variables that differ on every machine; simulators that read them expect that."""
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
    """`os.environ` that records the variables which a simulator's code reads one by one."""

    def __getitem__(self, name: str) -> str:
        try:
            value: str | None = super().__getitem__(name)
        except KeyError:
            value = None
        if name in _Noted.listed:
            _Noted.listed.discard(name)  # copying all variables is not a read of one
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
"""Values by name; None if not set."""


class _Noted:
    """The current record of reads, and the names listed but not looked up since."""

    read: ClassVar[Variables] = {}
    listed: ClassVar[set[str]] = set()


AT_IMPORT: Variables = {}
"""Variables that simulators read at import, once per process."""
_before: Variables = {}
"""Values of a job's variables in this process before the job set them."""


@contextlib.contextmanager
def noting_reads(read: Variables) -> Iterator[None]:
    """Record the variables that simulators read in the body, with their first values."""
    _Noted.read, _Noted.listed = read, set()
    os.environ.__class__ = _Noting
    try:
        yield
    finally:
        os.environ.__class__ = _PLAIN


def worth_telling(read: Mapping[str, str | None]) -> Variables:
    """Return the recorded reads and `AT_IMPORT`, without secrets and machine-specific variables."""
    found = {
        name: None if value is None else value[:_MAX_VALUE]
        for name, value in {**AT_IMPORT, **read}.items()
        if name not in _EVERYWHERE and not looks_secret(name, value or "")
    }
    return dict(list(found.items())[:MAX_READ])


def set_variables(wanted: Mapping[str, str]) -> None:
    """Set a job's variables in this process, in place of the previous job's."""
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
    """Name the variables whose value here differs from the value where actors run.

    Args:
        read: The simulator's reads where actors run.
        own: The job's own variables, which are set wherever it runs.

    Returns:
        One line per variable, without values: a shell's values are private.
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
    """Return the package of the code that reads a variable, skipping the standard library."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in ("os", "collections", "_collections_abc"):
            return name
        frame = frame.f_back
    return ""
