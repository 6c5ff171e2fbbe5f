"""Records which rounds of a run each tracker has, so that none is sent twice."""

from hashlib import sha256
from pathlib import Path
from typing import Literal

from nitro.errors import CommandError
from nitro.settings import STATE_FOLDER
from nitro.tracking.metrics import TrackedRound

TrackerName = Literal["wandb", "mlflow", "trackio"]


class ToldRounds:
    """A file per run, tracker and project in the folder of runs, with a line per round.

    A round is identified by its number and the job's cost before it, which only grows. So a
    repeated round differs from the first one, and from a plan with its number that ended the job.
    """

    def __init__(self, runs_dir: Path, job_id: str, tracker: str, project: str) -> None:
        """Read the rounds sent so far.

        Raises:
            CommandError: The file cannot be read.
        """
        # A project's name may be too long for a file name, and contain slashes.
        digest = sha256(project.encode()).hexdigest()[:12]
        self._path = runs_dir / STATE_FOLDER / "tracked" / f"{job_id}.{tracker}.{digest}"
        try:
            self._lines = set(self._path.read_text(encoding="ascii").splitlines())
        except FileNotFoundError:
            self._lines = set()
        except (OSError, ValueError) as error:
            raise CommandError(f"{self._path}: cannot be read ({error}); delete it") from error

    def __contains__(self, told: TrackedRound) -> bool:
        """Whether the round was sent."""
        return _line(told) in self._lines

    def has_round(self, index: int) -> bool:
        """Whether a round with this number was sent, even if it was repeated since."""
        return any(line.startswith(f"round {index} ") for line in self._lines)

    def note(self, told: TrackedRound) -> None:
        """Record a sent round.

        Raises:
            CommandError: The file cannot be written.
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
