"""Texts for errors raised by third-party code, whose own `repr` may fail."""

import importlib.metadata
import traceback
from collections.abc import Iterable

_MOST_FRAMES = 2
"""Innermost frames, which show what broke."""


def error_text(error: BaseException) -> str:
    """Return an error's `repr`, or a substitute if its `repr` fails."""
    try:
        return repr(error)
    except Exception as broken:  # its own code may raise anything
        return f"{type(error).__name__} (its text raises {type(broken).__name__})"


def where_raised(error: BaseException, modules: Iterable[str] = ()) -> str:
    """Return the innermost frames of an error, and the packages of these frames and of `modules`.

    Returns:
        Lines that begin with a line break; empty if the error has no traceback.
    """
    frames = list(traceback.walk_tb(error.__traceback__))[-_MOST_FRAMES:]
    lines = [
        f'\n  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
        for frame, line in frames
    ]
    names = [*modules, *(str(frame.f_globals.get("__name__", "")) for frame, _ in frames)]
    found = _installed(dict.fromkeys(name.partition(".")[0] for name in names))
    return "".join([*lines, f"\n  of {', '.join(found)}" if found else ""])


def _installed(tops: Iterable[str]) -> list[str]:
    """Return the distributions of top-level modules, with their versions."""
    known = importlib.metadata.packages_distributions()
    names = dict.fromkeys(name for top in tops for name in known.get(top, ()))
    return [f"{name} {importlib.metadata.version(name)}" for name in names]
