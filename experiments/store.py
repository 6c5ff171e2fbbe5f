"""Outcomes on disk: a small JSON per cell while an experiment runs, and one packed file afterwards.

    OUT/NAME/cells/CONDITION/ENVIRONMENT/SEED.json
    OUT/NAME/NAME.json, NAME.png, cells.xz

Each is written whole or not at all. The packed file has a line of JSON for each cell. Its outcomes
are rounded to six digits, so that all results in git are a few megabytes; tasks are as they were.

Quick results lie in OUT/quick/NAME, so that they are never taken for real ones.
"""

import json
import lzma
import os
import re
import shutil
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue, ValidationError

from experiments.experiment import Experiment
from experiments.grid import Body, Cell, CellId
from experiments.outcome import Outcome
from experiments.reporting.findings import Summary
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Count, Message
from shared.hyperparameters.presets import ALGORITHMS

PACKED = "cells.xz"
_DIGITS = 6
"""Of numbers in packed outcomes: more than any table or figure shows."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]+")


class _Record(Message):
    condition: str
    env_id: str
    seed: Count
    task: dict[str, JsonValue]
    hyperparameters: dict[str, JsonValue] | None = None
    """None in files of before they were kept: taken to be those of today."""
    outcome: dict[str, JsonValue]


class Store:
    """Reads and writes one experiment's files.

    Args:
        out: Folder of all experiments' results.
        experiment: Whose.
        quick: In the folder of quick ones.
    """

    def __init__(self, out: Path, experiment: Experiment, *, quick: bool) -> None:
        self._experiment = experiment
        self.folder = (out / "quick" if quick else out) / experiment.name

    @property
    def summary_path(self) -> Path:
        """Where the summary lies."""
        return self.folder / f"{self._experiment.name}.json"

    def read(self, cell: Cell) -> Outcome | None:
        """Return a cell's outcome; None if it is not there, or of another task or preset.

        Raises:
            CommandError: The file is damaged, or cannot be read.
        """
        path = self._path(cell.id)
        try:
            record = self._record(cell.id, path)
            if record is None:
                return None
            task = self._experiment.task.model_validate_json(json.dumps(record.task))
            if not _is_same(task, cell.task):
                return None
            if not _has_values(record.hyperparameters, cell):
                return None
            return self._experiment.outcome.model_validate_json(json.dumps(record.outcome))
        except OSError as error:
            raise _unreadable(path, error) from error
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise CommandError(f"{path}: {what}; delete it to have it made again") from error

    def _record(self, cell: CellId, path: Path) -> _Record | None:
        """Return a cell's file, or else its line of the packed ones."""
        if path.exists():
            return _Record.model_validate_json(path.read_bytes())
        line = self._packed.get(cell)
        return None if line is None else _Record.model_validate_json(line)

    @cached_property
    def _packed(self) -> dict[CellId, str]:
        return packed_cells(self.folder)

    def write(self, cell: Cell, outcome: Outcome) -> None:
        """Store a cell's outcome."""
        record = _Record(
            condition=cell.id.condition,
            env_id=cell.id.env_id,
            seed=cell.id.seed,
            task=cell.task.model_dump(mode="json"),
            hyperparameters=cell.hyperparameters,
            outcome=outcome.model_dump(mode="json"),
        )
        write_whole(self._path(cell.id), record.model_dump_json() + "\n")

    def write_summary(self, summary: Summary) -> None:
        """Store the experiment's summary, and pack its cells."""
        write_whole(self.summary_path, summary.model_dump_json(indent=1) + "\n")
        self._pack()

    def _pack(self) -> None:
        """Move all cells into the packed file."""
        loose = self.folder / "cells"
        found = packed_cells(self.folder)
        for path in loose.glob("*/*/*.json"):
            cell, line = _packed_line(path.read_text(encoding="utf-8"))
            found[cell] = line
        text = "".join(f"{found[cell]}\n" for cell in sorted(found))
        _write_whole(self.folder / PACKED, lzma.compress(text.encode()))
        shutil.rmtree(loose, ignore_errors=True)
        self.__dict__.pop("_packed", None)

    def summary(self) -> Summary | None:
        """Return the summary, None if there is none yet.

        Raises:
            CommandError: It is damaged, or cannot be read.
        """
        return read_summary(self.summary_path, self._experiment.command)

    def _path(self, cell: CellId) -> Path:
        condition, env_id = (_UNSAFE.sub("-", text) for text in (cell.condition, cell.env_id))
        return self.folder / "cells" / condition / env_id / f"{cell.seed}.json"


def packed_cells(folder: Path) -> dict[CellId, str]:
    """Return the packed cells of an experiment's folder: a line of JSON each, by cell.

    Raises:
        CommandError: The file cannot be read, or is damaged.
    """
    path = folder / PACKED
    try:
        lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        return {_cell_of(json.loads(line)): line for line in lines}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(path, error) from error
    except (lzma.LZMAError, ValueError, KeyError) as error:
        raise CommandError(f"{path}: damaged: {error}; take it from git again") from error


def _cell_of(record: dict[str, JsonValue]) -> CellId:
    return CellId(str(record["condition"]), str(record["env_id"]), int(str(record["seed"])))


def _packed_line(text: str) -> tuple[CellId, str]:
    record = json.loads(text)
    record["outcome"] = _rounded(record["outcome"])
    return _cell_of(record), json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _rounded(value: JsonValue) -> JsonValue:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [*map(_rounded, value)] if isinstance(value, list) else value


def _unreadable(path: Path, error: OSError) -> CommandError:
    return CommandError(f"{path}: cannot be read: {error.strerror}")


def _has_values(recorded: Body | None, cell: Cell) -> bool:
    """Whether a job was made with a cell's hyper-parameters; those of later have their defaults."""
    if recorded is None or not isinstance(cell.task, JobSpec):
        return recorded in (None, cell.hyperparameters)
    model = ALGORITHMS[cell.task.algorithm].model
    return model.model_validate(recorded) == model.model_validate(cell.hyperparameters)


def _is_same(stored: Message, asked: Message) -> bool:
    """Whether two tasks are the same; rules of learner functions count for jobs that have them."""
    if isinstance(stored, JobSpec) and stored.learner != "functions":
        rules = JobSpec.model_fields["learner_functions"].default
        stored, asked = (
            each.model_copy(update={"learner_functions": rules}) for each in (stored, asked)
        )
    return stored == asked


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a run cut short, never sees half of it."""
    _write_whole(path, text.encode())


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    new.replace(path)


def read_summary(path: Path, command: str) -> Summary | None:
    """Return the summary that a command made, None if there is none yet.

    Raises:
        CommandError: It is damaged, or cannot be read.
    """
    try:
        return Summary.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValidationError as error:
        what = error.errors(include_url=False)[0]["msg"]
        raise CommandError(f"{path}: {what}; make it again by: {command}") from error
