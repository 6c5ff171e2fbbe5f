"""Tasks that need a memory: policies with one and without, and sb3-contrib's RecurrentPPO.

    python -m benchmarks memory
    python -m benchmarks memory --only Recall-v0 --policies gru none --seeds 2

Run again, the command skips the runs that it has; `benchmarks.seed_runs` says how each is made. All
policies have their first seed before their second.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import memory_tasks
from benchmarks.seed_runs import (
    EPISODES,
    FIRST_SEED,
    PEER_PYTHON,
    Key,
    SeedRun,
    make_missing,
    own_run,
    peer_run,
)
from shared.contracts.environment_ref import EnvironmentRef
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters

POLICIES = ("none", "gru", "lstm", "sb3-contrib")
"""Of ours by their `hyperparameters.recurrent`; sb3-contrib's has an LSTM each for policy and
value."""
STEPS = {"Recall-v0": 61_440, "HiddenCartPole-v0": 102_400}
"""Environment steps of a run, by task."""
_SETTINGS = {
    "learning_rate": 1e-3,
    "minibatch_size": 256,
    "sequence_length": 32,
}
"""In place of the preset `standard`; for all of our policies. Chosen on seed 0, which no result is
of."""
_RAW_REWARDS = ("Recall-v0",)
"""Tasks whose rewards are not scaled: they are 0 or 1, and rare."""
_PEER_SCRIPT = Path(__file__).parent / "peers" / "sb3_contrib_recurrent.py"
_RESULTS = Path(__file__).parent / "results" / "memory.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and write a table of all to standard output."""
    options = _parser().parse_args(arguments)
    return make_missing(_wanted(options), options.out, _run)


def _wanted(options: argparse.Namespace) -> Iterator[Key]:
    for seed in range(1, options.seeds + 1):
        for env_id in options.only:
            for policy in options.policies:
                if policy != "sb3-contrib" or PEER_PYTHON in os.environ:
                    yield env_id, policy, seed


def _run(env_id: str, policy: str, seed: int) -> SeedRun:
    return (_theirs if policy == "sb3-contrib" else _ours)(env_id, policy, seed)


def _ours(env_id: str, policy: str, seed: int) -> SeedRun:
    settings = {**STANDARD.model_dump(), **_SETTINGS, "recurrent": policy}
    settings["reward_scaling"] = env_id not in _RAW_REWARDS
    rule, ref = PpoHyperparameters.model_validate(settings), EnvironmentRef(env_id=env_id)
    return own_run(ref, rule, policy=policy, seed=seed, steps=STEPS[env_id])


def _theirs(env_id: str, policy: str, seed: int) -> SeedRun:
    arguments = [env_id, str(STEPS[env_id]), str(seed), memory_tasks.__file__]
    arguments += [str(EPISODES), str(FIRST_SEED)]
    return peer_run(_PEER_SCRIPT, arguments, key=(env_id, policy, seed))


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
