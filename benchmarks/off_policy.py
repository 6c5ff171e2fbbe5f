"""IMPACT and IMPALA beside PPO: returns after the same steps, and the time these would take.

    python -m benchmarks.off_policy Hopper-v4 --seeds 3 --steps 1000000

Every seed of every algorithm is one job on the local system, everything real, with the preset
`standard`: PPO round by round, IMPACT and IMPALA with two rounds in flight. Returns are means of
the last 100 training episodes, as in `benchmarks.references`. Wall times are those projected by
`shared.money.costs` from the measured rollouts and updates, as in every job's bill: on this
machine the actors share the learner's cores, on AWS they do not.

Jobs stay in `--runs-dir`: after Ctrl-C the same command goes on where it was, and skips seeds that
are done. Some of the algorithms, or other seeds than the first ones, make a result of their own.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from benchmarks.records.off_policy import (
    AlgorithmResult,
    StudyResult,
    algorithm_result,
    claims,
    study_seed,
    study_table,
)
from benchmarks.references import SeedTrainer, positive
from nitro.errors import EXIT_INTERRUPTED
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec

_RESULTS = Path(__file__).with_name("results") / "off_policy"
_RUNS = Path("runs/off_policy")
_CONTESTANTS = (("ppo", 1), ("impact", 2), ("impala", 2))
"""Algorithms and rounds in flight."""
_NAMES = [name for name, _ in _CONTESTANTS]
_NUM_ACTORS = 2
_STEPS_PER_ACTOR = 1024
_BUDGET_USD = 1000.0
"""More than any of these runs would cost: money is not what is measured."""


def study_spec(
    env_id: str, algorithm: str, *, rounds_in_flight: int, seed: int, steps: int
) -> JobSpec:
    """Return the job of one seed."""
    rounds = max(1, steps // (_NUM_ACTORS * _STEPS_PER_ACTOR))
    return JobSpec.model_validate(
        {
            "env_id": env_id,
            "algorithm": algorithm,
            "preset": "standard",
            "seed": seed,
            "rounds_in_flight": rounds_in_flight,
            "steps_per_actor": _STEPS_PER_ACTOR,
            "actors": {"min": _NUM_ACTORS, "max": _NUM_ACTORS},
            "scaling": {"policy": "fixed", "num_actors": _NUM_ACTORS},
            "stop": {"max_rounds": rounds, "budget_usd": _BUDGET_USD},
            # Before the first and after the last update.
            "evaluation": {"every_rounds": rounds, "episodes": 10},
            "checkpoint": {"keep": 1},
        }
    )


def result_name(options: argparse.Namespace) -> str:
    """Return the file a study is saved in: one of a part replaces none of the whole."""
    parts = [options.env_id.replace("/", "-").lower()]
    if set(options.algorithms) != set(_NAMES):
        parts += sorted(set(options.algorithms))
    if options.first_seed > 1:
        parts.append(f"from-seed-{options.first_seed}")
    return f"{'-'.join(parts)}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train everything and save the result; returns 1 if a seed could not be trained."""
    options = parser().parse_args(arguments)
    try:
        if not options.quick:
            return _run(options, runs_dir=options.runs_dir, out=options.out)
        options.seeds, options.steps = 1, 3 * _NUM_ACTORS * _STEPS_PER_ACTOR
        with tempfile.TemporaryDirectory() as folder:
            return _run(options, runs_dir=Path(folder), out=None)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, *, runs_dir: Path, out: Path | None) -> int:
    environment = describe_environment()
    command = (
        f"python -m benchmarks.off_policy {options.env_id} --seeds {options.seeds} "
        f"--steps {options.steps}"
    )
    if set(options.algorithms) != set(_NAMES):
        command += f" --algorithms {' '.join(options.algorithms)}"
    if options.first_seed > 1:
        command += f" --first-seed {options.first_seed}"
    progress(command)
    with SeedTrainer.opened(runs_dir) as trainer:
        try:
            algorithms = tuple(
                _trained(trainer, name, rounds_in_flight, options)
                for name, rounds_in_flight in _CONTESTANTS
                if name in options.algorithms
            )
        except RuntimeError as error:
            progress(str(error))
            return 1
    result = StudyResult(
        env_id=options.env_id,
        command=command,
        environment=environment,
        algorithms=algorithms,
        claims=claims(algorithms),
    )
    Console().print(study_table(result))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / result_name(options)
        path.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
        progress(f"saved {path}")
    return 0


def _trained(
    trainer: SeedTrainer, algorithm: str, rounds_in_flight: int, options: argparse.Namespace
) -> AlgorithmResult:
    """Train all seeds of one algorithm.

    Raises:
        RuntimeError: A job did not end well.
    """
    seeds = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        progress(f"{algorithm}, {rounds_in_flight} in flight, seed {seed}")
        spec = study_spec(
            options.env_id,
            algorithm,
            rounds_in_flight=rounds_in_flight,
            seed=seed,
            steps=options.steps,
        )
        training = trainer.train(spec)
        run = read_run(trainer.runs_dir / training.job_id)
        wall_s = trainer.client.cost(training.job_id).projected_wall_s
        seeds.append(study_seed(run, training, projected_wall_s=wall_s))
        progress(f"{algorithm}, seed {seed}: {training.final_return:.1f}, {wall_s:,.0f} s")
    return algorithm_result(run, seeds)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.off_policy",
        description="Train IMPACT, IMPALA and PPO and compare returns and projected wall times.",
        epilog="example: python -m benchmarks.off_policy Hopper-v4 --seeds 3 --steps 1000000",
    )
    arguments.add_argument("env_id", metavar="ENV", nargs="?", default="Hopper-v4")
    arguments.add_argument("--seeds", type=positive, default=3, help="how many to train")
    arguments.add_argument("--first-seed", type=positive, default=1, help="they count up from this")
    arguments.add_argument("--steps", type=positive, default=1_000_000, help="per seed")
    arguments.add_argument(
        "--algorithms",
        nargs="+",
        choices=_NAMES,
        default=_NAMES,
        help="those to train; default: all",
    )
    arguments.add_argument("--runs-dir", type=Path, default=_RUNS, help="where jobs stay")
    arguments.add_argument("--out", type=Path, default=_RESULTS, help="folder for the JSON")
    arguments.add_argument("--quick", action="store_true", help="smoke run; saves nothing")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
