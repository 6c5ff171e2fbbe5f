"""Returns of a first training, beside Stable-Baselines3's defaults at equal steps.

    python -m benchmarks first_results
    python -m benchmarks first_results --only CartPole-v1 Acrobot-v1 --seeds 5
    python -m benchmarks first_results --only Pendulum-v1 --contestants nitro \
        --set hyperparameters.learning_rate=1e-3 --out benchmarks/results/first_results_tried.jsonl
    python -m benchmarks first_results --algorithm sac --seeds 3
    python -m benchmarks first_results --algorithm ars --only Swimmer-v5

Ours is the job that `nitro train ENV --total-steps N` submits; theirs is `PPO("MlpPolicy", env)`.
Both then play the same 20 episodes with the policy of the last update and its most likely actions.
Each run is one line of the JSON at once, so the same command goes on after Ctrl-C, and skips the
runs that it has. Seed 1 of all environments comes first. `--page` writes the table into the
documentation, from the runs made so far, and trains nothing. `--set` tries other values for ours.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from pydantic import JsonValue

from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from benchmarks.peers.interpreters import PeerSettings, peer_python
from benchmarks.records.first_results import (
    ContestantName,
    FirstResult,
    append_result,
    comparisons,
    markdown_table,
    read_results,
    tried_table,
)
from benchmarks.seed_trainer import SeedTrainer
from functions.actor.rollout import evaluate_episode
from nitro.errors import EXIT_INTERRUPTED, CommandError
from nitro.runs.checkpoints import read_policy
from nitro.runs.reading import read_job, read_run
from nitro.spec.spec_file import parsed_assignments
from nitro.spec.train_spec import train_spec
from shared.contracts.job_spec import JobSpec
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.hyperparameters.ars import ArsHyperparameters
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.crossq import CrossqHyperparameters
from shared.hyperparameters.presets import resolve

STEPS = {
    "CartPole-v1": 50_000,
    "MountainCarContinuous-v0": 50_000,
    "Acrobot-v1": 100_000,
    "Pendulum-v1": 100_000,
    "MountainCar-v0": 100_000,
    "InvertedPendulum-v5": 100_000,
    "InvertedDoublePendulum-v5": 100_000,
    "Reacher-v5": 100_000,
    "Pusher-v5": 100_000,
    "Swimmer-v5": 100_000,
    "Hopper-v5": 100_000,
    "Walker2d-v5": 100_000,
    "HalfCheetah-v5": 100_000,
    "Ant-v5": 100_000,
    "Humanoid-v5": 100_000,
    "LunarLander-v3": 300_000,
    "LunarLanderContinuous-v3": 300_000,
    "BipedalWalker-v3": 300_000,
    "Benchmarks/Road-v0": 100_000,
    "Benchmarks/FetchReachDense-v4": 50_000,
    "Benchmarks/HighwayFast-v0": 20_000,
}
"""Environment steps by environment. The last two need packages, see `flattened.py`."""
SAC_STEPS = {"Pendulum-v1": 10_000, "Hopper-v5": 30_000}
"""As few as two cores bear: each step takes a gradient step."""
ARS_STEPS = {"Swimmer-v5": 500_000, "Hopper-v5": 7_000_000, "HalfCheetah-v5": 5_000_000}
_STEPS = {"ppo": STEPS, "sac": SAC_STEPS, "crossq": SAC_STEPS, "ars": ARS_STEPS}
_EQUAL: dict[str, dict[str, JsonValue]] = {
    "ppo": {},
    "sac": {"hyperparameters.learning_starts": 100},
    "crossq": {"hyperparameters.learning_starts": 100},
    "ars": {},
}
"""Where our job would have another value than theirs, and few steps show nothing but that."""
_MODULES = ("road", "flattened")
"""Of this folder: they register environments."""
_PACKAGES = [f"benchmarks.{name}" for name in _MODULES]
_CONTESTANTS: tuple[ContestantName, ...] = ("nitro", "stable-baselines3")
_EPISODES = 20
_FIRST_SEED = 1_000_000
"""Of those episodes: far from the seeds that runs train with."""
_QUICK_STEPS = 4096
_PEER_SCRIPT = Path(__file__).parent / "peers" / "stable_baselines3_default.py"
_FOLDER = Path(__file__).parent / "results"
_RESULTS = {"ppo": _FOLDER / "first_results.jsonl"} | {
    name: _FOLDER / f"first_results_{name}.jsonl" for name in ("sac", "crossq", "ars")
}
_PAGE = Path(__file__).parents[1] / "docs" / "results" / "first_results.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing; returns 1 if one could not be made."""
    options = parser().parse_args(arguments)
    if options.page:
        text = _PAGE.read_text(encoding="utf-8")
        _PAGE.write_text(page(text, options.out or _RESULTS["ppo"]), encoding="utf-8")
        return 0
    options.out = options.out or _RESULTS[options.algorithm]
    if options.quick:
        options.seeds = options.first_seed
    if options.first_seed > options.seeds:
        parser().error(
            f"--first-seed {options.first_seed} is above --seeds {options.seeds}, the last seed"
        )
    try:
        if not options.quick:
            return _run(options, options.runs_dir)
        with tempfile.TemporaryDirectory() as folder:
            options.out = Path(folder) / "results.jsonl"
            return _run(options, Path(folder))
    except CommandError as error:
        progress(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def page(text: str, results: Path) -> str:
    """Return a page with tables of the runs made so far between their marks."""

    def runs(suffix: str) -> list[FirstResult]:
        return read_results(results.with_name(f"{results.stem}{suffix}.jsonl"))

    tables = {"first results": markdown_table(comparisons(runs("")))}
    for name in _RESULTS.keys() - {"ppo"}:
        tables[name] = markdown_table(comparisons(runs(f"_{name}")))
    tables["tried"] = tried_table(runs("_tried"))
    for name, table in tables.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}\n{end}{after}"
    return text


def first_result_spec(
    env_id: str, *, steps: int, seed: int, assignments: Sequence[str], algorithm: str = "ppo"
) -> JobSpec:
    """Return the job of one seed: what the command line would submit.

    Raises:
        CommandError: An assignment is wrong.
    """
    options: dict[str, JsonValue] = {"env_id": env_id, "seed": seed, "algorithm": algorithm}
    options |= _EQUAL[algorithm] | parsed_assignments(assignments)
    return train_spec(options=options, total_steps=steps)


def _run(options: argparse.Namespace, runs_dir: Path) -> int:
    failed = 0
    with ExitStack() as stack:
        trainer: SeedTrainer | None = None
        for contestant, spec, steps in _missing(options):
            try:
                if contestant != "nitro":
                    found = _theirs(spec, steps=steps)
                else:
                    if trainer is None:
                        opened = SeedTrainer.opened(runs_dir, packages=_PACKAGES)
                        trainer = stack.enter_context(opened)
                    found = _ours(trainer, spec, steps=steps)
            except RuntimeError as error:
                failed += 1
                progress(f"{spec.env_id}, {contestant}, seed {spec.seed}: {error}")
                continue
            append_result(options.out, found)
            progress(
                f"{spec.env_id}, {contestant}, seed {spec.seed}: {found.mean_return:.1f} after "
                f"{found.env_steps:,} steps, {found.train_s:.0f} s"
            )
    sys.stdout.write(markdown_table(comparisons(read_results(options.out))) + "\n")
    return 1 if failed else 0


def _missing(options: argparse.Namespace) -> Iterator[tuple[ContestantName, JobSpec, int]]:
    """Yield the runs to make: who, the job of ours, and the steps of either."""
    usual = _STEPS[options.algorithm]
    for seed in range(options.first_seed, options.seeds + 1):
        for env_id in options.only or usual:
            steps = _QUICK_STEPS if options.quick else options.steps or usual[env_id]
            spec = first_result_spec(
                env_id,
                steps=steps,
                seed=seed,
                assignments=options.assignments,
                algorithm=options.algorithm,
            )
            for contestant in options.contestants:
                settings = settings_of(spec) if contestant == "nitro" else ""
                key = (env_id, contestant, seed, steps, settings)
                if key not in {result.key for result in read_results(options.out)}:
                    yield contestant, spec, steps


def settings_of(spec: JobSpec) -> str:
    """Return what tells a job of ours from others with its steps and seed, as JSON."""
    names = {"hyperparameters", "samples_per_round", "steps_per_actor", "scaling"}
    return json.dumps(spec.model_dump(mode="json", include=names), sort_keys=True)


def _ours(trainer: SeedTrainer, spec: JobSpec, *, steps: int) -> FirstResult:
    environment = describe_environment()
    folder = trainer.train(spec)
    results = [line.result for line in read_run(folder).rounds if line.result is not None]
    return FirstResult(
        env_id=spec.env_id,
        contestant="nitro",
        seed=spec.seed,
        steps=steps,
        settings=settings_of(spec),
        returns=tuple(_played(folder)),
        env_steps=sum(result.env_steps for result in results),
        train_s=sum(result.timing.total_s for result in results),
        environment=environment,
    )


def _played(folder: Path) -> Iterator[float]:
    """Yield the returns of the episodes with the policy of a run's last update."""
    job, (version, policy) = read_job(folder), read_policy(folder)
    ref = job.spec.environment_ref
    with closing(make_environment(ref)) as env:
        for index in range(_EPISODES):
            task = RolloutTask(
                mode="evaluate",
                job_id=job.job_id,
                round=version,
                attempt=0,
                actor_index=index,
                policy_version=version,
                env=ref,
                steps=1,
                seed=_FIRST_SEED + index,
            )
            yield float(evaluate_episode(task, env, policy).episode_return)


def _theirs(spec: JobSpec, *, steps: int) -> FirstResult:
    environment = describe_environment()
    # -I: neither our packages nor the user's can shadow the peer's.
    command = [str(peer_python(PeerSettings())), "-I", str(_PEER_SCRIPT), spec.env_id]
    command += [str(steps), str(spec.seed), "--episodes", str(_EPISODES)]
    command += ["--first-seed", str(_FIRST_SEED), "--algorithm", spec.algorithm]
    rule = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    command += ["--settings", json.dumps(_contrib_settings(rule))]
    if isinstance(rule, ArsHyperparameters) and rule.observation_normalisation:
        command.append("--normalise")
    command += [f"--module={Path(__file__).with_name(f'{name}.py')}" for name in _MODULES]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=one_thread, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the peer ended with {done.returncode}; its words stand above")
    # Some simulators greet on standard output.
    answer = json.loads(done.stdout.splitlines()[-1])
    return FirstResult(
        env_id=spec.env_id,
        contestant="stable-baselines3",
        seed=spec.seed,
        steps=steps,
        environment=environment,
        **answer,
    )


def _contrib_settings(rule: Hyperparameters) -> dict[str, JsonValue]:
    """Return where SB3-Contrib's defaults differ from ours, in its words."""
    if isinstance(rule, CrossqHyperparameters):
        policy, critics = rule.hidden_sizes, rule.value_hidden_sizes or rule.hidden_sizes
        return {"policy_kwargs": {"net_arch": {"pi": [*policy], "qf": [*critics]}}}
    if isinstance(rule, ArsHyperparameters):
        return {
            "n_delta": rule.directions,
            "n_top": rule.num_counting,
            "learning_rate": rule.step_size,
            "delta_std": rule.exploration_std,
            "alive_bonus_offset": -rule.reward_offset,
        }
    return {}


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


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks first_results",
        description="Train first jobs and Stable-Baselines3's defaults for equal steps.",
        epilog="example: python -m benchmarks first_results --only CartPole-v1 --seeds 5",
    )
    arguments.add_argument(
        "--only", nargs="+", metavar="ENV", help="default: all of the table, in its order"
    )
    arguments.add_argument("--algorithm", choices=_RESULTS, default="ppo", help="of both")
    arguments.add_argument("--seeds", type=positive, default=5, help="the last seed (default: 5)")
    arguments.add_argument(
        "--first-seed", type=positive, default=1, help="the first seed (default: 1)"
    )
    arguments.add_argument("--steps", type=positive, help="default: the table's of each")
    arguments.add_argument(
        "--contestants", nargs="+", choices=_CONTESTANTS, default=list(_CONTESTANTS)
    )
    arguments.add_argument(
        "--set",
        dest="assignments",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="any field of our job; repeatable",
    )
    arguments.add_argument("--runs-dir", type=Path, default=Path("runs/first_results"))
    arguments.add_argument("--out", type=Path, help="the JSON lines; default: the algorithm's")
    arguments.add_argument("--page", action="store_true", help="write the page; train nothing")
    arguments.add_argument("--quick", action="store_true", help="smoke run; saves nothing")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
