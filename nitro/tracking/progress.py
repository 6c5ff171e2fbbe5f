"""Rounds that each tracker has received of a run, so that none is sent twice."""

from hashlib import sha256
from pathlib import Path
from typing import Literal

from nitro.errors import CommandError
from nitro.settings import STATE_FOLDER
from nitro.tracking.metrics import TrackedRound

TrackerName = Literal["wandb", "mlflow", "trackio"]


class ToldRounds:
    """A small file for each run, tracker and project, in the folder of runs; a line a round.

    A round is known by its number and by what the job had spent before it, which only grows: so a
    round that was made again is another one, and so is the plan that ended a job at its number.
    """

    def __init__(self, runs_dir: Path, job_id: str, tracker: str, project: str) -> None:
        """Read what has been told.

        Raises:
            CommandError: The file cannot be read.
        """
        # A project's name may be longer than a file's, and hold slashes.
        digest = sha256(project.encode()).hexdigest()[:12]
        self._path = runs_dir / STATE_FOLDER / "tracked" / f"{job_id}.{tracker}.{digest}"
        try:
            self._lines = set(self._path.read_text(encoding="ascii").splitlines())
        except FileNotFoundError:
            self._lines = set()
        except (OSError, ValueError) as error:
            raise CommandError(f"{self._path}: cannot be read ({error}); delete it") from error

    def __contains__(self, told: TrackedRound) -> bool:
        """Whether it was told."""
        return _line(told) in self._lines

    def has_round(self, index: int) -> bool:
        """Whether a round of this number was told, be it another one by now."""
        return any(line.startswith(f"round {index} ") for line in self._lines)

    def note(self, told: TrackedRound) -> None:
        """Note a round that was told.

        Raises:
            CommandError: It cannot be written down.
        """
        self._lines.add(_line(told))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="ascii") as file:
                file.write(f"{_line(told)}\n")
        except OSError as error:
            raise CommandError(f"{self._path}: cannot be written ({error.strerror})") from error


def _line(told: TrackedRound) -> str:
    kind = "ending" if told.is_ending else "round"
    return f"{kind} {told.index} {told.metrics['cost/spent_usd']!r}"
