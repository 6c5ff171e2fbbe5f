"""Seeds of the job that `nitro train` begins from: what a stranger gets, and how long it takes.

    python -m benchmarks.first_run --seeds 5

Every seed is one job on the local system, everything real, as after `make train`. What counts is
the final return: the mean of ten episodes with the trained policy's most likely actions. Jobs stay
in `--runs-dir`: after Ctrl-C the same command goes on where it was, and skips seeds that are done.
`--set` tries another starting job.
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from benchmarks.records.first_run import (
    FirstRunSeed,
    first_run_seed,
    first_run_table,
    summed_up,
)
from benchmarks.references import SeedTrainer, positive
from nitro.errors import EXIT_INTERRUPTED, CommandError
from nitro.runs.reading import read_run
from nitro.spec.starting_job import train_spec
from nitro.spec.total_steps import parse_steps
from shared.contracts.job_spec import JobSpec

_RESULTS = Path(__file__).with_name("results")
_RUNS = Path("runs/first_run")
_QUICK_STEPS = "8192"


def first_run_spec(options: argparse.Namespace, seed: int) -> JobSpec:
    """Return the job of one seed.

    Raises:
        CommandError: `--set` or `--total-steps` is wrong.
    """
    return train_spec(
        options={"env_id": options.env_id, "seed": seed},
        assignments=options.assignments,
        total_steps=None if options.total_steps is None else parse_steps(options.total_steps),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the seeds and save their result; returns 1 if one could not be trained."""
    options = parser().parse_args(arguments)
    try:
        if not options.quick:
            return _run(options, runs_dir=options.runs_dir, out=options.out)
        options.seeds, options.total_steps = 1, options.total_steps or _QUICK_STEPS
        with tempfile.TemporaryDirectory() as folder:
            return _run(options, runs_dir=Path(folder), out=None)
    except CommandError as error:
        progress(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, *, runs_dir: Path, out: Path | None) -> int:
    environment, command = describe_environment(), _command(options)
    specs = [first_run_spec(options, seed) for seed in range(1, options.seeds + 1)]
    progress(command)
    seeds: list[FirstRunSeed] = []
    with SeedTrainer.opened(runs_dir) as trainer:
        for spec in specs:
            try:
                job_id = trainer.train(spec).job_id
                seeds.append(first_run_seed(read_run(runs_dir / job_id)))
            except RuntimeError as error:
                progress(str(error))
    if not seeds:
        return 1
    job = read_run(runs_dir / seeds[0].job_id).job
    result = summed_up(job, seeds, command=command, environment=environment)
    Console().print(first_run_table(result))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
        progress(f"saved {out}")
    return 0 if len(seeds) == options.seeds else 1


def _command(options: argparse.Namespace) -> str:
    said = ["python", "-m", "benchmarks.first_run", options.env_id, "--seeds", str(options.seeds)]
    if options.total_steps is not None:
        said += ["--total-steps", options.total_steps]
    return shlex.join([*said, *(part for each in options.assignments for part in ("--set", each))])


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.first_run",
        description="Train seeds of the job that `nitro train` begins from.",
        epilog="example: python -m benchmarks.first_run --seeds 5",
    )
    arguments.add_argument("env_id", metavar="ENV", nargs="?", default=JobSpec().env_id)
    arguments.add_argument("--seeds", type=positive, default=5, help="trains seeds 1 to this")
    arguments.add_argument("--total-steps", metavar="STEPS", help="default: the starting job's")
    arguments.add_argument(
        "--set",
        dest="assignments",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="any field of the job; repeatable",
    )
    arguments.add_argument("--runs-dir", type=Path, default=_RUNS, help="where jobs stay")
    arguments.add_argument(
        "--out", type=Path, default=_RESULTS / "first_run.json", help="the JSON to write"
    )
    arguments.add_argument("--quick", action="store_true", help="smoke run; saves nothing")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
