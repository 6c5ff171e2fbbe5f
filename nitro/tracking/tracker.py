"""The interface of experiment trackers, and its implementations."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Protocol, cast, get_args

from pydantic import JsonValue

from nitro.errors import EXIT_FAILED, CommandError
from nitro.tracking.metrics import TrackedRun
from nitro.tracking.progress import TrackerName


class Tracker(Protocol):
    """An open run in a tracker."""

    @property
    def last_round(self) -> int | None:
        """The last logged round; None if the tracker does not know."""

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        """Log a round."""

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        """Log the run's results, if it has ended, and close it."""


def require_tracker(name: str) -> None:
    """Check, before training starts, that a tracker is usable.

    Raises:
        CommandError: There is no such tracker, or its package is not installed.
    """
    _module(name)


def open_tracker(name: str, run: TrackedRun, *, project: str) -> Tracker:
    """Return a run in a tracker: the existing one, or else a new one.

    Raises:
        CommandError: There is no such tracker, or its package is not installed.
    """
    return cast("Tracker", _module(name).open_run(run, project=project))


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn any error of a tracker's package into one message.

    Raises:
        CommandError: The package raised an error.
    """
    try:
        yield
    except CommandError:
        raise
    except Exception as error:  # each package raises its own and its transport's errors
        why = str(error).strip() or type(error).__name__
        raise CommandError(f"tracker {name}: {why}", exit_code=EXIT_FAILED) from error


def _module(name: str) -> ModuleType:
    if name not in get_args(TrackerName):
        known = ", ".join(get_args(TrackerName))
        raise CommandError(f"the tracker must be one of {known}, got {name!r:.80}")
    try:
        return import_module(f"nitro.tracking.{name}_tracker")
    except ImportError as error:
        raise CommandError(
            f"tracker {name}: its package is missing ({error.name}): pip install 'nitro-rl[{name}]'"
        ) from None
