"""Returns of whole training runs beside published ones.

    python -m benchmarks.references Hopper-v4 --preset standard --seeds 3 --steps 1000000

Every seed is one job on the local system, everything real: cache, scaler, Lambda emulator, actors,
learner. A round has CleanRL's 2,048 steps: 2 actors of 1,024. What is compared is what CleanRL
reports: the mean return of a run's last 100 training episodes, then mean and deviation over seeds.
With `--horizon limit` episodes go on in the next round; with `fragment` every fragment begins with
a reset; the default is the preset's. Where that cuts episodes which would go on, the return is that
of ten deterministic episodes after the last update, and is compared with nothing published.

Jobs stay in `--runs-dir`: after Ctrl-C the same command goes on where it was, and skips seeds that
are done. After a SIGKILL it does too, but waits for the lost round's deadline first. With `--peer`
Stable-Baselines3 trains the same seeds afterwards, for environments nobody has published.
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from benchmarks.peers.reference_peer import train_peer
from benchmarks.records.reference import (
    PeerSeed,
    SeedResult,
    reference_table,
    seed_result,
    summed_up,
)
from nitro.client.client import NitroClient
from nitro.client.follow import Snapshot, follow
from nitro.errors import EXIT_INTERRUPTED
from nitro.local.own_environments import actor_variables
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.hyperparameters.horizons import Horizon, preset_horizon
from shared.hyperparameters.presets import complete_sets, resolve

_RESULTS = Path(__file__).with_name("results") / "references"
_RUNS = Path("runs/references")
_NUM_ACTORS = 2
_STEPS_PER_ACTOR = 1024
_STEPS = 1_000_000
_EVALUATIONS = 20
"""Of a run whose training episodes may be cut."""
_BUDGET_USD = 1000.0
"""More than any of these runs would cost: money is not what is measured."""


def reference_spec(options: argparse.Namespace, seed: int) -> JobSpec:
    """Return the job of one seed."""
    rounds = max(1, options.steps // (options.actors * options.steps_per_actor))
    # Before the first and after the last update, or all along where episodes may be cut.
    whole = _horizon(options) == "limit"
    every_rounds = rounds if whole else max(1, rounds // _EVALUATIONS)
    return JobSpec.model_validate(
        {
            "env_id": options.env_id,
            "algorithm": options.algorithm,
            "preset": options.preset,
            "seed": seed,
            "steps_per_actor": options.steps_per_actor,
            "actors": {"min": options.actors, "max": options.actors},
            "scaling": {"policy": "fixed", "num_actors": options.actors},
            "stop": {"max_rounds": rounds, "budget_usd": _BUDGET_USD},
            "evaluation": {"every_rounds": every_rounds, "episodes": 10},
            "checkpoint": {"keep": 1},
            "episodes": {"horizon": _horizon(options)},
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTrainer:
    """Trains the jobs of single seeds to their end on a running local system."""

    system: LocalSystem
    client: NitroClient
    runs_dir: Path

    @classmethod
    @contextmanager
    def opened(
        cls,
        runs_dir: Path,
        *,
        environment: Mapping[str, Mapping[str, str]] | None = None,
        packages: Sequence[str] = (),
    ) -> Iterator[Self]:
        """Start the local system, and end it again.

        Args:
            runs_dir: Where jobs stay.
            environment: As the local system has it.
            packages: Python packages that register environments.
        """
        actors = actor_variables(packages)
        with (
            LocalSystem(runs_dir, environment=environment, actor_variables=actors) as system,
            NitroClient(system.api_url, system.token, timeout_s=120.0) as client,
        ):
            system.wait_ready()
            yield cls(system=system, client=client, runs_dir=runs_dir)

    def train(self, spec: JobSpec) -> SeedResult:
        """Train the job, or go on with it; return its result.

        Raises:
            RuntimeError: The job did not end well.
        """
        job = self.client.submit(spec, idempotency_key=f"reference-{spec_digest(spec)}")
        if job.status in ("stopped", "failed"):
            job = self.client.resume(job.job_id)
        try:
            job = self._followed(job)
        except KeyboardInterrupt:
            # Not in the middle of a round: what its actors made would be lost with the cache, and
            # going on would wait out its deadline first.
            progress("stopping after the update in hand")
            self.client.stop(job.job_id)
            self._followed(job)
            raise
        if job.status != "succeeded":
            raise RuntimeError(f"seed {spec.seed}, job {job.job_id} {job.status}: {job.error}")
        return seed_result(read_run(self.runs_dir / job.job_id))

    def _followed(self, job: Job) -> Job:
        tenth = 0
        for snapshot in follow(self.client, job.job_id, check=self.system.check, every_s=1.0):
            job = snapshot.job
            before, tenth = tenth, 10 * snapshot.finished_rounds // job.spec.stop.max_rounds
            progress(_described(snapshot), transient=tenth == before)
        return job


def spec_digest(spec: JobSpec) -> str:
    """Return what tells a job from others, also from one before its preset was changed."""
    presets = [
        resolve(spec.algorithm, spec.preset, spec.hyperparameters, images=images).model_dump_json()
        for images in (False, True)
    ]
    whole = "\n".join((spec.model_dump_json(), *presets))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _described(snapshot: Snapshot) -> str:
    spec, training, rate = snapshot.job.spec, snapshot.training_return, snapshot.steps_per_s
    return (
        f"  seed {spec.seed}: round {snapshot.finished_rounds} of {spec.stop.max_rounds}"
        + (f", return {training:.0f}" if training is not None else "")
        + (f", {rate:,.0f} steps/s" if rate is not None else "")
    )


def positive(text: str) -> int:
    """Return a whole number above 0; argparse names the option beside what is wrong.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the seeds and save their result; returns 1 if one could not be trained."""
    options = parser().parse_args(arguments)
    try:
        if not options.quick:
            return _run(options, runs_dir=options.runs_dir, out=options.out)
        options.seeds, options.steps = 1, 4 * options.actors * options.steps_per_actor
        with tempfile.TemporaryDirectory() as folder:
            return _run(options, runs_dir=Path(folder), out=None)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, *, runs_dir: Path, out: Path | None) -> int:
    environment = describe_environment()
    command = _command(options)
    progress(command)
    seeds: list[SeedResult] = []
    with SeedTrainer.opened(runs_dir) as trainer:
        for seed in range(1, options.seeds + 1):
            try:
                found = trainer.train(reference_spec(options, seed))
            except RuntimeError as error:
                progress(str(error))
                continue
            seeds.append(found)
            progress(
                f"seed {seed}: return {found.final_return:.1f}, {found.steps_per_s:,.0f} steps/s"
            )
    if not seeds:
        return 1
    peer = _peer(options, runs_dir) if options.peer else []
    job = read_run(runs_dir / seeds[0].job_id).job
    result = summed_up(job, seeds, peer, command=command, environment=environment)
    Console().print(reference_table(result))
    complete = len(seeds) == options.seeds and (not options.peer or len(peer) == options.seeds)
    if not complete:
        progress("not saved, as seeds are missing: the same command goes on with them")
    elif out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{_name(options)}.json"
        path.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
        progress(f"saved {path}")
    return 0 if complete else 1


def _name(options: argparse.Namespace) -> str:
    """Return the result's name: with the shape of a round, and steps, where not CleanRL's."""
    parts = [options.env_id.replace("/", "-").lower(), options.algorithm, options.preset]
    shape = (options.actors, options.steps_per_actor)
    if (*shape, _horizon(options)) != (_NUM_ACTORS, _STEPS_PER_ACTOR, "fragment"):
        parts += ["x".join(map(str, shape)), str(_horizon(options))]
    if options.steps != _STEPS:
        parts.append(str(options.steps))
    return "-".join(parts)


def _horizon(options: argparse.Namespace) -> Horizon:
    """Return the horizon that is asked for, or the preset's in the environment."""
    asked: Horizon | None = options.horizon
    return asked or preset_horizon(options.preset, options.env_id)


def horizon(text: str) -> str | int:
    """Return `limit`, `fragment` or a number of steps."""
    return text if text in ("limit", "fragment") else positive(text)


def _peer(options: argparse.Namespace, folder: Path) -> list[PeerSeed]:
    found = []
    for seed in range(1, options.seeds + 1):
        try:
            found.append(train_peer(options.env_id, steps=options.steps, seed=seed, folder=folder))
        except RuntimeError as error:  # our own seeds are worth keeping all the same
            progress(str(error))
            continue
        progress(f"peer's seed {seed}: return {found[-1].final_return:.1f}")
    return found


def _command(options: argparse.Namespace) -> str:
    return (
        f"python -m benchmarks.references {options.env_id} --algorithm {options.algorithm} "
        f"--preset {options.preset} --seeds {options.seeds} --steps {options.steps} "
        f"--actors {options.actors} --steps-per-actor {options.steps_per_actor} "
        f"--horizon {_horizon(options)}" + (" --peer" if options.peer else "")
    )


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.references",
        description="Train seeds through the whole local system and compare published returns.",
        epilog="example: python -m benchmarks.references Hopper-v4 --seeds 3 --steps 1000000",
    )
    arguments.add_argument("env_id", metavar="ENV")
    algorithms, presets = ([*dict.fromkeys(names)] for names in zip(*complete_sets(), strict=True))
    arguments.add_argument("--algorithm", default="ppo", choices=algorithms)
    arguments.add_argument(
        "--preset", default="standard", choices=presets, help="see: nitro presets"
    )
    arguments.add_argument("--seeds", type=positive, default=3, help="trains seeds 1 to this")
    arguments.add_argument("--steps", type=positive, default=_STEPS, help="per seed")
    arguments.add_argument("--actors", type=positive, default=_NUM_ACTORS, help="per round")
    arguments.add_argument("--steps-per-actor", type=positive, default=_STEPS_PER_ACTOR)
    arguments.add_argument(
        "--horizon",
        type=horizon,
        help="steps after a reset at which a training episode is cut, or: limit, fragment; "
        "default: the preset's",
    )
    arguments.add_argument(
        "--peer",
        action="store_true",
        help="train the same seeds with Stable-Baselines3 and our preset standard afterwards",
    )
    arguments.add_argument("--runs-dir", type=Path, default=_RUNS, help="where jobs stay")
    arguments.add_argument("--out", type=Path, default=_RESULTS, help="folder for the JSON")
    arguments.add_argument("--quick", action="store_true", help="smoke run; saves nothing")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
