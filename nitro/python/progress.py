"""How `nitro.train` shows progress: a panel on a terminal, a line in a notebook, or nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

from nitro.cli.progress import LineView, progress_view
from nitro.client.follow import Snapshot
from nitro.runs.summary import duration, number

_WIDTH = 24
"""Characters of the bar."""


class View(Protocol):
    """A view of progress."""

    def show(self, snapshot: Snapshot) -> None:
        """Show a job's state."""

    def note(self, text: str) -> None:
        """Show a permanent line."""


class NotebookView:
    """One line that is rewritten in place."""

    def show(self, snapshot: Snapshot) -> None:
        """Rewrite the line."""
        sys.stdout.write(f"\r{progress_line(snapshot)}")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write a separate line."""
        sys.stdout.write(f"\r{text}\n")


@contextmanager
def shown_progress(*, wanted: bool | None) -> Iterator[View]:
    """Yield a view of a job's progress.

    Args:
        wanted: None shows it on a terminal and in a notebook; True also elsewhere, one line per
            round.
    """
    console = Console(stderr=True)
    if wanted is None:
        wanted = console.is_terminal or console.is_jupyter
    if not wanted:
        yield LineView(Console(quiet=True))
    elif console.is_jupyter:
        yield NotebookView()
        sys.stdout.write("\n")
    else:
        with progress_view(console) as view:
            yield view


def progress_line(snapshot: Snapshot) -> str:
    """Return a job's progress in one line, padded to cover a longer predecessor."""
    stop, progress = snapshot.job.spec.stop, snapshot.job.progress
    filled = int(_WIDTH * stop.share_done(progress.rounds, progress.env_steps))
    parts = [
        f"{'█' * filled}{'░' * (_WIDTH - filled)} {stop.of_rounds(progress.rounds)}",
        f"return {number(snapshot.training_return)}",
        f"{snapshot.job.progress.env_steps:,} steps",
    ]
    if snapshot.eta_s is not None:
        parts.append(f"{duration(snapshot.eta_s)} left")
    return "  ".join(parts).ljust(90)
