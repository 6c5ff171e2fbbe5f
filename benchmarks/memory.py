"""Tasks that need a memory: policies with one and without, and sb3-contrib's RecurrentPPO.

    python -m benchmarks memory
    python -m benchmarks memory --only Recall-v0 --policies gru none --seeds 2

Each run is one line of the JSON at once, so the same command goes on after Ctrl-C, and skips the
runs that it has. All seeds of one number come before the next. Ours are PPO's update and an actor's
rollout in this process, with `envs` environments whose episodes go on from round to round: what a
job does, without its services. A result is the mean return of 20 deterministic episodes with the
policy of the last update. sb3-contrib's interpreter is named by `NITRO_SB3_CONTRIB_PYTHON`; without
it its runs are left out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import fmean, pstdev

import torch

from benchmarks import memory_tasks
from benchmarks.environment import Environment, describe_environment
from benchmarks.measurement import progress
from functions.actor.rollout import evaluate_episode, sample_fragment
from learning.algorithms.ppo import Ppo
from nitro.errors import EXIT_INTERRUPTED
from shared.contracts.job_spec import EnvironmentRef
from shared.contracts.message import Count, Message, NonNegativeFloat, Number, PositiveInt
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import describe, make_environment
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.seeds import actor_seed

POLICIES = ("none", "gru", "lstm", "sb3-contrib")
"""Of ours by their `hyperparameters.recurrent`; sb3-contrib's has an LSTM each for policy and
value."""
STEPS = {"Recall-v0": 61_440, "HiddenCartPole-v0": 102_400}
"""Environment steps of a run, by task."""
ENVS, ROUND = 8, 2048
"""Environments side by side, and steps of a round over all of them; the same for sb3-contrib."""
_SETTINGS = {
    "learning_rate": 1e-3,
    "minibatch_size": 256,
    "sequence_length": 32,
}
"""In place of the preset `standard`; for all of our policies. Chosen on seed 0, which no result is
of."""
_RAW_REWARDS = ("Recall-v0",)
"""Tasks whose rewards are not scaled: they are 0 or 1, and rare."""
EPISODES, FIRST_SEED = 20, 1_000_000
_PEER_SCRIPT = Path(__file__).parent / "peers" / "sb3_contrib_recurrent.py"
PEER_PYTHON = "NITRO_SB3_CONTRIB_PYTHON"
_RESULTS = Path(__file__).parent / "results" / "memory.jsonl"


class MemoryResult(Message):
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
    def key(self) -> tuple[str, str, int]:
        """The identity of a run."""
        return (self.env_id, self.policy, self.seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and write a table of all to standard output."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    done = read_results(options.out)
    try:
        for env_id, policy, seed in _wanted(options):
            if (env_id, policy, seed) in {result.key for result in done}:
                continue
            result = (_theirs if policy == "sb3-contrib" else _ours)(env_id, policy, seed)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(result.model_dump_json() + "\n")
            done.append(result)
            progress(f"{env_id}, {policy}, seed {seed}: {fmean(result.returns):.2f}")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    sys.stdout.write(table(done) + "\n")
    return 0


def table(results: Sequence[MemoryResult]) -> str:
    """Return the runs as a table in Markdown."""
    groups: defaultdict[tuple[str, str], list[MemoryResult]] = defaultdict(list)
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


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    for seed in range(1, options.seeds + 1):
        for env_id in options.only:
            for policy in options.policies:
                if policy != "sb3-contrib" or PEER_PYTHON in os.environ:
                    yield env_id, policy, seed


def read_results(path: Path) -> list[MemoryResult]:
    """Return the runs that a file has, none where there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [MemoryResult.model_validate_json(line) for line in lines]


def _ours(env_id: str, policy: str, seed: int) -> MemoryResult:
    environment = describe_environment()
    ref = EnvironmentRef(env_id=env_id)
    settings = {**STANDARD.model_dump(), **_SETTINGS, "recurrent": policy}
    settings["reward_scaling"] = env_id not in _RAW_REWARDS
    rule, rounds = PpoHyperparameters.model_validate(settings), STEPS[env_id] // ROUND
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


def trained(
    ref: EnvironmentRef, rule: PpoHyperparameters, *, seed: int, rounds: int
) -> tuple[tuple[float, ...], float]:
    """Train by PPO in this process; return the returns of episodes then, and processor seconds."""
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
    return tuple(_played(ref, load_policy(*algorithm.policy_payload()))), cpu_s


def _played(ref: EnvironmentRef, policy: NumpyPolicy) -> Iterator[float]:
    with closing(make_environment(ref)) as env:
        for index in range(EPISODES):
            task = _task(ref, 0, seed=FIRST_SEED + index).model_copy(update={"mode": "evaluate"})
            yield float(evaluate_episode(task, env, policy).episode_return)


def _task(ref: EnvironmentRef, index: int, *, seed: int) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="memory",
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


def _theirs(env_id: str, policy: str, seed: int) -> MemoryResult:
    environment = describe_environment()
    # -I: neither our packages nor the user's can shadow the peer's.
    command = [os.environ[PEER_PYTHON], "-I", str(_PEER_SCRIPT), env_id, str(STEPS[env_id])]
    command += [str(seed), memory_tasks.__file__, str(EPISODES), str(FIRST_SEED)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=one_thread, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return MemoryResult(env_id=env_id, policy=policy, seed=seed, environment=environment, **answer)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks memory",
        description="Train policies with and without a memory on tasks that need one.",
        epilog="example: python -m benchmarks memory --only Recall-v0 --seeds 2",
    )
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="TASK")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seeds", type=int, default=5, help="trains seeds 1 to this")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="the JSON lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
