"""Bills of simulated jobs, written down and compared: `python -m tests.bills --help`.

Every schedule is a job on the simulated clock: which rounds, actors, learners and restarts it has
follows from its number alone. So two versions of the scaler are given the same schedules, and every
line of every bill must be the same.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from services.scaler.money.ledger import Clock
from shared.contracts.billing import LedgerLine
from tests.services.scaler.money.test_budget_simulation import SCALINGS
from tests.services.scaler.rounds.test_service_interleavings import (
    World,
    overlapping_spec,
    play_world,
)
from tests.services.scaler.simulated_gradients import GradientScaler
from tests.services.scaler.simulated_job import SimulatedScaler
from tests.services.scaler.simulated_overlap import OverlappingScaler

_EPILOG = """examples:
  python -m tests.bills record old.jsonl                # with one version checked out
  python -m tests.bills record new.jsonl                # with the other
  python -m tests.bills compare old.jsonl new.jsonl     # 1 if any line differs
"""
_SIMULATED: tuple[type[SimulatedScaler], ...] = (SimulatedScaler, OverlappingScaler, GradientScaler)
_KINDS = (*(kind.__name__ for kind in _SIMULATED), World.__name__)


def bill_of(index: int) -> dict[str, Any]:
    """Return a schedule's kind and its bill, line by line."""
    kind = _KINDS[index % len(_KINDS)]
    lines = _of_world(index) if kind == World.__name__ else _of_job(index)
    return {"schedule": index, "kind": kind, "lines": [line.model_dump() for line in lines]}


def _of_job(index: int) -> list[LedgerLine]:
    scaler = _SIMULATED[index % len(_KINDS)](index)
    scaler.run(scaler.random_spec(SCALINGS[index % len(SCALINGS)]))
    return scaler.book.lines("job")


def _of_world(index: int) -> list[LedgerLine]:
    spec = overlapping_spec(open_rounds=1 + index % 3, headroom=1.0 + index % 11)
    clock: Clock = "wall" if index % 8 < 4 else "projected"
    with TemporaryDirectory() as folder:
        world = World(spec, Path(folder), clock=clock, seed=index)
        play_world(world)
        lines = world.book.lines("job")
        world.book.close()
    return lines


def record(path: Path, schedules: int) -> None:
    """Write the bills of so many schedules, one a line."""
    with path.open("w") as file:
        for index in range(schedules):
            file.write(json.dumps(bill_of(index)) + "\n")


def differences(old: Path, new: Path) -> Iterator[str]:
    """Yield the schedules whose bills differ, each with the first line that does."""
    for before, after in zip_longest(*(path.read_text().splitlines() for path in (old, new))):
        if before == after:
            continue
        one, other = (json.loads(line or '{"lines": []}') for line in (before, after))
        pairs = enumerate(zip_longest(one["lines"], other["lines"]))
        where = next((f"line {n}: {a} != {b}" for n, (a, b) in pairs if a != b), "another kind")
        yield f"schedule {one.get('schedule', other.get('schedule'))}: {where}"


def main(argv: Sequence[str] | None = None) -> int:
    """Record bills, or compare two records; return 1 where they differ."""
    options = _parser().parse_args(argv)
    if options.command == "record":
        record(options.path, options.schedules)
        return 0
    different = list(differences(options.old, options.new))
    sys.stdout.writelines(f"{each}\n" for each in different)
    num = len(options.old.read_text().splitlines())
    sys.stdout.write(f"{num} schedules, {len(different)} bills differ\n")
    return int(bool(different))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bills",
        description="Writes down what simulated jobs are billed, line by line, and compares.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write the bills of simulated jobs to a file")
    recording.add_argument("path", type=Path)
    recording.add_argument("--schedules", type=int, default=200, help="how many (default: 200)")
    comparing = commands.add_parser("compare", help="compare two such files")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    return parser


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # actors are lost by the thousand
    sys.exit(main())
