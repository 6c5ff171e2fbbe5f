"""Runs of single seeds in this process or a peer's, one line of JSON each, and their table.

Ours are PPO's update and an actor's rollout in this process, with `ENVS` environments whose
episodes continue from round to round: a job's work, without its services. A result is the mean
return of 20 deterministic episodes with the policy of the last update. `NITRO_SB3_CONTRIB_PYTHON`
names the peers' interpreter; without it their runs are left out.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import fmean, pstdev

import torch

from benchmarks.environment import Environment, describe_environment
from benchmarks.measurement import progress
from functions.actor.rollout import evaluate_episode, sample_fragment
from learning.algorithms.ppo import Ppo
from nitro.errors import EXIT_INTERRUPTED
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.message import Count, Message, NonNegativeFloat, Number, PositiveInt
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.seeds import actor_seed

ENVS, ROUND = 8, 2048
"""Environments side by side, and steps of a round over all of them; the same for the peers."""
EPISODES, FIRST_SEED = 20, 1_000_000
"""Episodes after training, and the seed of the first."""
PEER_PYTHON = "NITRO_SB3_CONTRIB_PYTHON"
Key = tuple[str, str, int]
"""Environment, policy and seed."""


class SeedRun(Message):
    """The outcome of one run."""

    env_id: str
    policy: str
    seed: Count
    returns: tuple[Number, ...]
    env_steps: PositiveInt
    cpu_s: NonNegativeFloat
    """Processor seconds of training."""
    about: dict[str, str] = {}
    """Versions, as sb3-contrib's process says them."""
    environment: Environment

    @property
    def key(self) -> Key:
        """The identity of a run."""
        return (self.env_id, self.policy, self.seed)


def make_missing(wanted: Iterable[Key], out: Path, make: Callable[[str, str, int], SeedRun]) -> int:
    """Make the runs that a file lacks, and write a table of all to standard output.

    Each is one line of the JSON at once, so the same command resumes after Ctrl-C.

    Args:
        wanted: The runs.
        out: The JSON lines.
        make: Makes one.

    Returns:
        The exit code.
    """
    torch.set_num_threads(1)
    done = read_runs(out)
    try:
        for env_id, policy, seed in wanted:
            if (env_id, policy, seed) in {run.key for run in done}:
                continue
            run = make(env_id, policy, seed)
            with out.open("a", encoding="utf-8") as file:
                file.write(run.model_dump_json() + "\n")
            done.append(run)
            progress(f"{env_id}, {policy}, seed {seed}: {fmean(run.returns):.2f}")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    sys.stdout.write(table(done) + "\n")
    return 0


def table(results: Sequence[SeedRun]) -> str:
    """Return the runs as a table in Markdown."""
    groups: defaultdict[tuple[str, str], list[SeedRun]] = defaultdict(list)
    for result in results:
        groups[result.env_id, result.policy].append(result)
    lines = ["| task | policy | mean ± deviation over seeds | seeds | CPU seconds a run |"]
    lines.append("|---|---|--:|---|--:|")
    for (env_id, policy), runs in sorted(groups.items()):
        means = [fmean(run.returns) for run in sorted(runs, key=lambda run: run.seed)]
        seeds = ", ".join(f"{mean:.3g}" for mean in means)
        spread = f"{fmean(means):.3g} ± {pstdev(means):.2g}"
        cpu_s = fmean(run.cpu_s for run in runs)
        lines.append(f"| `{env_id}` | {policy} | {spread} | {seeds} | {cpu_s:.0f} |")
    return "\n".join(lines)


def read_runs(path: Path) -> list[SeedRun]:
    """Return the runs that a file has, none where there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [SeedRun.model_validate_json(line) for line in lines]


def own_run(
    ref: EnvironmentRef, rule: PpoHyperparameters, *, policy: str, seed: int, steps: int
) -> SeedRun:
    """Train by PPO in this process, and play episodes with the policy of the last update.

    Args:
        ref: The environment.
        rule: Hyper-parameters.
        policy: Name of the policy in the record.
        seed: Seed of the training.
        steps: Environment steps; whole rounds of them are trained.
    """
    environment, rounds = describe_environment(), steps // ROUND
    algorithm = Ppo(describe(ref), rule, seed=seed, max_rounds=rounds)
    left: tuple[bytes, ...] = ()
    start = time.process_time()
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(make_environment(ref))) for _ in range(ENVS)]
        for index in range(rounds):
            task = _task(
                ref, index, seed=actor_seed(seed, mode="sample", round_index=index, actor_index=0)
            )
            trajectory = sample_fragment(
                task, envs, load_policy(*algorithm.policy_payload()), starts=left
            )
            left = trajectory.snapshots
            algorithm.learn([trajectory])
    cpu_s = time.process_time() - start
    return SeedRun(
        env_id=ref.env_id,
        policy=policy,
        seed=seed,
        returns=tuple(_played(ref, load_policy(*algorithm.policy_payload()))),
        env_steps=rounds * ROUND,
        cpu_s=cpu_s,
        environment=environment,
    )


def _played(ref: EnvironmentRef, policy: NumpyPolicy) -> Iterator[float]:
    with closing(make_environment(ref)) as env:
        for index in range(EPISODES):
            task = _task(ref, 0, seed=FIRST_SEED + index).model_copy(update={"mode": "evaluate"})
            yield float(evaluate_episode(task, env, policy).episode_return)


def _task(ref: EnvironmentRef, index: int, *, seed: int) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="benchmark",
        round=index,
        attempt=0,
        actor_index=0,
        policy_version=index,
        env=ref,
        steps=ROUND,
        num_envs=ENVS,
        seed=seed,
        continues=True,
        replay_steps=ROUND,
    )


def peer_run(script: Path, arguments: Sequence[str], *, key: Key) -> SeedRun:
    """Return a run of a peer's script, whose last line of output is JSON."""
    environment = describe_environment()
    # -I: neither our packages nor the user's can shadow the peer's.
    command = [os.environ[PEER_PYTHON], "-I", str(script), *arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=one_thread, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    env_id, policy, seed = key
    return SeedRun(env_id=env_id, policy=policy, seed=seed, environment=environment, **answer)
