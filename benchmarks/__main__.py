"""The benchmarks: `python -m benchmarks`, or `make bench`."""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Result, Row
from benchmarks.records.table import result_table

_ROOMS = ("actors", "learner", "system")
NAMES = (
    "actor_rollout",
    "training_throughput",
    "curvature",
    "curvature_peers",
    "ranks",
    "sac",
    "wire",
    "atari_actor",
    "kept_episodes",
    "start_up",
    "decision",
    "many_actors",
    "searches",
    "search_rollout",
    "overhead",
    "places",
    "dashboard",
)
"""Modules in rooms of `benchmarks.claims`, in the order they are run."""
_LONG = ("dashboard_memory", "replayed_episodes", "rungs")
"""Further ones, run where they are named: they take ten minutes each."""
_WITH_GPU = ("gpu",)
"""The same: most machines have no GPU."""
_STUDIES = ("first_results", "memory", "observations")
"""Those with options and results of their own; a study is run alone."""
_RESULTS = Path(__file__).with_name("results")
_PLAIN_WIDTH = 140
"""Columns of a table that is not shown on a terminal."""
_EXAMPLES = """\
examples:
  python -m benchmarks                         everything, about ten minutes
  python -m benchmarks wire start_up           two of them
  python -m benchmarks --quick                 does it run at all? saves nothing
  python -m benchmarks gpu                     the learner's, on a machine that has one
  python -m benchmarks first_results --help    first trainings beside Stable-Baselines3's, hours
  python -m benchmarks memory --help           tasks that need a recurrent policy, an hour
  python -m benchmarks observations --help     parts and masks beside sb3-contrib, an hour
  NITRO_PEERS_PYTHON=~/sb3/bin/python python -m benchmarks actor_rollout
                                               peers from an environment you have

benchmarks: {names}; ten minutes each: {long}; where there is a GPU: {with_gpu}

Each prints a table and writes its raw samples, with versions and machine, to
{{out}}/{{name}}.json. Close other programs first: ratios survive a busy machine, targets may not.
""".format(names=", ".join(NAMES), long=", ".join(_LONG), with_gpu=", ".join(_WITH_GPU))


class Benchmark(Protocol):
    """The interface of a benchmark's module."""

    TITLE: str

    def measure(self, effort: Effort) -> list[Row]:
        """Measure everything and return one row per claim."""


class Study(Protocol):
    """The interface of a study's module."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run it; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; returns 1 if one could not be run, whether or not targets are met."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    if given and given[0] in _STUDIES:
        study = cast("Study", importlib.import_module(f"benchmarks.{given[0]}"))
        return study.main(given[1:])
    options = _parser().parse_args(given)
    known = (*NAMES, *_LONG, *_WITH_GPU)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; known: {', '.join(known)}\n")
        return 2
    out = options.out or (None if options.quick else _RESULTS)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    failed = []
    for name in options.names or NAMES:
        try:
            result = run(name, Effort(quick=options.quick))
        except Exception as error:  # one that fails must not cost the others
            failed.append(name)
            sys.stderr.write(f"{name} failed: {type(error).__name__}: {error}\n")
            continue
        console.print(result_table(result))
        if out is not None:
            progress(f"saved {result.save(out)}")
    if failed:
        sys.stderr.write(f"not measured: {', '.join(failed)}\n")
    return 1 if failed else 0


def run(name: str, effort: Effort) -> Result:
    """Run one benchmark."""
    start = time.monotonic()
    progress(f"{name} ...")
    environment = describe_environment()
    modules = (f"benchmarks.claims.{room}.{name}" for room in _ROOMS)
    benchmark = cast("Benchmark", importlib.import_module(next(filter(find_spec, modules))))
    rows = tuple(benchmark.measure(effort))
    progress(f"{name} took {time.monotonic() - start:.0f} s")
    quick = " --quick" if effort.quick else ""
    return Result(
        name=name,
        title=benchmark.TITLE,
        command=f"python -m benchmarks {name}{quick}",
        environment=environment,
        rows=rows,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure every performance claim beside its peer, in turn, in one run.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the JSON (default: benchmarks/results)"
    )
    parser.add_argument("--quick", action="store_true", help="smoke run with meaningless numbers")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
