"""The seam to an experiment tracker, and what there is behind it."""

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
    """One run in a tracker, open for more rounds."""

    @property
    def last_round(self) -> int | None:
        """The last round it has; None where it cannot tell."""

    def log(self, round_index: int, metrics: Mapping[str, float]) -> None:
        """Take a round."""

    def finish(self, summary: Mapping[str, JsonValue]) -> None:
        """Take what the run came to, or nothing yet, and let go of it."""


def require_tracker(name: str) -> None:
    """Make sure, before anything begins, that a tracker can be used.

    Raises:
        CommandError: There is no such tracker, or its package is not installed.
    """
    _module(name)


def open_tracker(name: str, run: TrackedRun, *, project: str) -> Tracker:
    """Return a run in a tracker, the one of an earlier call if there is one.

    Raises:
        CommandError: There is no such tracker, or its package is not installed.
    """
    return cast("Tracker", _module(name).open_run(run, project=project))


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn whatever a tracker's package raises into one message.

    Raises:
        CommandError: It raised something.
    """
    try:
        yield
    except CommandError:
        raise
    except Exception as error:  # each package has errors of its own, and of its transport
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
