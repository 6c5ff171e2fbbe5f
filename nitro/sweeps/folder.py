"""A sweep's folder, `RUNS/sweeps/NAME/`: its specification, its rows and its results.

sweep.json   the specification, and what makes its environments
rows.json    every row, written whole after each change: a sweep that is killed loses nothing
stop         asks the command that runs the sweep to end
"""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pydantic import Field, TypeAdapter, ValidationError

from nitro.errors import CommandError
from nitro.hints import Place
from nitro.sweeps.rows import Row
from nitro.sweeps.spec import SweepSpec
from shared.contracts.message import Message

SWEEPS = "sweeps"
_ROWS: TypeAdapter[list[Row]] = TypeAdapter(list[Row])


class Asked(Message):
    """The specification of a started sweep."""

    spec: SweepSpec
    identity: str = Field(default_factory=lambda: uuid4().hex)
    """Distinguishes it from sweeps of the same name on one API."""
    environment_packages: tuple[str, ...] = ()
    """As named on the command line."""


class SweepFolder:
    """Reads and writes one sweep."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self.runs_dir = runs_dir
        self.name = name
        self.path = runs_dir / SWEEPS / name

    @property
    def journal(self) -> Path:
        """Optuna's storage."""
        return self.path / "optuna.journal"

    def exists(self) -> bool:
        """Whether the sweep was started."""
        return (self.path / "sweep.json").is_file()

    def begin(self, asked: Asked, rows: Sequence[Row]) -> None:
        """Write a new sweep."""
        self.write(rows)
        self._write("sweep.json", asked.model_dump_json(indent=1))

    def asked(self) -> Asked:
        """Return the sweep's specification.

        Raises:
            CommandError: There is no such sweep, or its file is damaged.
        """
        path = self.path / "sweep.json"
        try:
            return Asked.read(path.read_bytes())
        except OSError:
            known = ", ".join(sweep_names(self.runs_dir)[-5:])
            hint = f"; sweeps there: {known}" if known else ""
            raise CommandError(f"NAME: no sweep {self.name!r} in {self.runs_dir}{hint}") from None
        except ValidationError as error:
            raise _damaged(path, error) from error

    def raise_budget(self, budget_usd: float) -> None:
        """Raise the sweep's budget.

        Raises:
            CommandError: It is lower than before, or the sweep had none.
        """
        asked = self.asked()
        before = asked.spec.budget_usd
        if before is None or budget_usd < before:
            told = "none" if before is None else f"{before:g}"
            raise CommandError(
                f"--budget-usd: can only rise, and only if the sweep has one: it has {told}, got "
                f"{budget_usd:g}"
            )
        spec = asked.spec.model_copy(update={"budget_usd": budget_usd, "name": self.name})
        changed = asked.model_copy(update={"spec": spec})
        self._write("sweep.json", changed.model_dump_json(indent=1))

    def rows(self) -> list[Row]:
        """Return the last written rows.

        Raises:
            CommandError: The file is not there, or damaged.
        """
        path = self.path / "rows.json"
        try:
            return _ROWS.validate_json(path.read_bytes())
        except OSError as error:
            raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            raise _damaged(path, error) from error

    def write(self, rows: Sequence[Row]) -> None:
        """Write all rows atomically."""
        lines = ",\n".join(row.model_dump_json(exclude_defaults=True) for row in rows)
        self._write("rows.json", f"[{lines}]\n")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the lock to run the sweep.

        Raises:
            CommandError: Another command holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                stop = Place(runs_dir=self.runs_dir).command("sweep", "stop", self.name)
                raise CommandError(
                    f"{self.name}: another command runs this sweep; end it with: {stop}"
                ) from None
            self._stop_file.unlink(missing_ok=True)
            yield

    def is_held(self) -> bool:
        """Whether a command runs the sweep."""
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def ask_to_stop(self) -> None:
        """Ask the command that runs the sweep to end."""
        self._stop_file.touch()

    def asked_to_stop(self) -> bool:
        """Whether the stop was requested."""
        return self._stop_file.exists()

    @property
    def _stop_file(self) -> Path:
        return self.path / "stop"

    def _write(self, name: str, text: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f".{name}.{os.getpid()}"
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path / name)
        except OSError as error:
            raise CommandError(f"cannot write {self.path / name}: {error.strerror}") from error


def sweep_names(runs_dir: Path) -> list[str]:
    """Return the names of the sweeps in a folder of runs, newest last."""
    found = (runs_dir / SWEEPS).glob("*/sweep.json")
    return [path.parent.name for path in sorted(found, key=lambda path: path.stat().st_mtime)]


def _damaged(path: Path, error: ValidationError) -> CommandError:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return CommandError(f"{path}: {json.dumps(where)}: {first['msg']}; written by another version?")
