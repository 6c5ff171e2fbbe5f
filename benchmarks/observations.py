"""Observations of several parts and masks of actions, beside Stable-Baselines3 and sb3-contrib.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks observations
    OPENBLAS_NUM_THREADS=1 python -m benchmarks observations --only Camera-v0 --seeds 1

Each run is one line of the JSON at once, so the same command goes on after Ctrl-C, and skips the
runs that it has. The variable gives NumPy one thread, as actors have it. How ours train is told in
`benchmarks.memory`. The peers' interpreter is named by
`NITRO_SB3_CONTRIB_PYTHON`; without it their runs are left out. MiniGrid has to be installed in both
interpreters.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks import observation_tasks
from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from benchmarks.memory import (
    ENVS,
    EPISODES,
    FIRST_SEED,
    PEER_PYTHON,
    ROUND,
    MemoryResult,
    read_results,
    table,
    trained,
)
from nitro.errors import EXIT_INTERRUPTED
from shared.contracts.job_spec import EnvironmentRef, WrapperRef
from shared.hyperparameters.ppo import STANDARD, STANDARD_IMAGES, PpoHyperparameters

_PEER_SCRIPT = Path(__file__).parent / "peers" / "sb3_observations.py"
_RESULTS = Path(__file__).parent / "results" / "observations.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An environment, and who trains on it."""

    steps: int
    """Environment steps of a run."""
    policies: Mapping[str, tuple[WrapperRef, ...]]
    """Ours, by the wrappers of each."""
    peer: str
    preset: PpoHyperparameters
    settings: Mapping[str, Any]
    """In place of the preset's, and for the peer as well. Chosen on seed 0, which no result is
    of."""


TASKS = {
    "Camera-v0": Task(
        steps=61_440,
        policies={"nitro": ()},
        peer="sb3",
        preset=STANDARD_IMAGES,
        settings={"learning_rate": 5e-4, "num_epochs": 4},
    ),
    "MiniGrid-DoorKey-5x5-v0": Task(
        steps=102_400,
        policies={"nitro": (WrapperRef(name="LeaveOut", kwargs={"parts": "mission"}),)},
        peer="sb3",
        preset=STANDARD,
        settings={"learning_rate": 1e-3, "num_epochs": 10},
    ),
    "Dispatch-v0": Task(
        steps=61_440,
        policies={"nitro, masked": (WrapperRef(name="ActionMask"),), "nitro, no mask": ()},
        peer="sb3-contrib",
        preset=STANDARD,
        settings={"learning_rate": 1e-3, "num_epochs": 10},
    ),
}
_COMMON = {"minibatch_size": 256, "entropy_coefficient": 0.01}
_SQUARED = {"value_loss": "bounded_error", "value_clip": 1e9}
"""The peers' value loss, without a clip; with the preset's `Dispatch-v0` ended at 44.5 on seed 0,
with this one at 48.0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and write a table of all to standard output."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    done = read_results(options.out)
    try:
        for env_id, policy, seed in _wanted(options):
            if (env_id, policy, seed) in {result.key for result in done}:
                continue
            result = (_ours if policy in TASKS[env_id].policies else _theirs)(env_id, policy, seed)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(result.model_dump_json() + "\n")
            done.append(result)
            progress(f"{env_id}, {policy}, seed {seed}: {fmean(result.returns):.2f}")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    sys.stdout.write(table(done) + "\n")
    return 0


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    for seed in options.seeds:
        for env_id in options.only:
            yield from ((env_id, policy, seed) for policy in TASKS[env_id].policies)
            if PEER_PYTHON in os.environ:
                yield env_id, TASKS[env_id].peer, seed


def _ours(env_id: str, policy: str, seed: int) -> MemoryResult:
    environment, task = describe_environment(), TASKS[env_id]
    if env_id.startswith("MiniGrid"):
        importlib.import_module("minigrid")
    rule = PpoHyperparameters.model_validate(
        {**task.preset.model_dump(), **_COMMON, **_SQUARED, **task.settings}
    )
    ref = EnvironmentRef(env_id=env_id, wrappers=task.policies[policy])
    rounds = task.steps // ROUND
    returns, cpu_s = trained(ref, rule, seed=seed, rounds=rounds)
    return MemoryResult(
        env_id=env_id,
        policy=policy,
        seed=seed,
        returns=returns,
        env_steps=rounds * ROUND,
        cpu_s=cpu_s,
        environment=environment,
    )


def _theirs(env_id: str, policy: str, seed: int) -> MemoryResult:
    environment, task = describe_environment(), TASKS[env_id]
    settings = {"envs": ENVS, "round": ROUND, **_COMMON, **task.settings}
    # -I: neither our packages nor the user's can shadow the peer's.
    command = [os.environ[PEER_PYTHON], "-I", str(_PEER_SCRIPT), env_id, policy, str(task.steps)]
    command += [str(seed), observation_tasks.__file__, str(EPISODES), str(FIRST_SEED)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, json.dumps(settings)], stdout=subprocess.PIPE, env=one_thread, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return MemoryResult(env_id=env_id, policy=policy, seed=seed, environment=environment, **answer)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks observations",
        description="Train on observations of several parts, and with masks of actions.",
        epilog="example: python -m benchmarks observations --only Camera-v0 --seeds 1",
    )
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="which to train")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="the JSON lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
