"""What must hold of a job whatever was done to it, by its record, its bill and the journal."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nitro.client.client import NitroClient
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.hyperparameters.presets import resolve
from shared.hyperparameters.search import SearchHyperparameters
from tests.e2e.runs import final_weights, timeless_rounds

_EXECUTIONS = 2
"""Of one actor of one attempt at a round: its first, and a second one if that failed."""


def weights_digest(runs_dir: Path, job_id: str) -> str:
    """Return what tells two jobs' final weights apart."""
    name, state, policy = final_weights(runs_dir, job_id)
    return hashlib.sha256(name.encode() + state + policy).hexdigest()


def used_twice(runs_dir: Path, job_id: str, spec: JobSpec) -> int:
    """Return how many trajectories, or episodes of a search, were used more than once."""
    twice = 0
    rule = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    for line in timeless_rounds(runs_dir, job_id):
        result = line["result"]
        if result and isinstance(rule, SearchHyperparameters):
            # Its actors share a round's episodes, and no length is given.
            asked = rule.most_iterations * rule.num_episodes
            twice += max(0, len(result["episode_returns"]) - asked)
        elif result:
            used = result["trajectories"]["used"]
            twice += max(0, result["env_steps"] // spec.steps_per_actor - used)
    return twice


def lost_evaluations(runs_dir: Path, job_id: str) -> int:
    """Return how many evaluations were planned of which no episode is on record."""
    lines = timeless_rounds(runs_dir, job_id)
    return sum(bool(line["plan"]["num_evaluations"] and not line["evaluation"]) for line in lines)


def begun_anew(runs_dir: Path, job_id: str) -> int:
    """Return how many episodes were to go on and began anew."""
    lines = timeless_rounds(runs_dir, job_id)
    return sum(line["result"]["begun_anew"] for line in lines if line["result"])


def over_budget_usd(client: NitroClient, job: Job) -> float:
    """Return by how much a job has spent, or may have spent, more than it may; 0 if it has not."""
    cost = client.cost(job.job_id)
    return max(0.0, cost.settled_usd + cost.reserved_usd - job.spec.stop.budget_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """When processes were ended, in Unix seconds."""

    scaler: Sequence[float]
    emulator: Sequence[float]


def launched_twice(journal: Path, job_id: str, ends: Ends) -> int:
    """Return how many actors of an attempt at a job's round were launched again without a reason.

    There is a reason when the first launch failed, or nobody heard of its end because the emulator
    ended: then its scaler may issue it once more. Another scaler never may.
    """
    launches: dict[str, list[tuple[float, str]]] = defaultdict(list)
    failed: set[str] = set()
    for line in map(json.loads, journal.read_text().splitlines()):
        if line.get("ended"):
            failed.add(line["id"])
        elif line.get("event", {}).get("job_id") == job_id:
            actor = json.dumps(line["event"], sort_keys=True)
            launches[actor].append((line["at"], line["id"]))
    return sum(_without_reason(launched, failed, ends) for launched in launches.values())


def _without_reason(launched: Sequence[tuple[float, str]], failed: set[str], ends: Ends) -> bool:
    (first_at, first), (last_at, _) = launched[0], launched[-1]
    if len(launched) == 1:
        return False
    by_another = any(first_at < ended_at < last_at for ended_at in ends.scaler)
    unheard = any(first_at < ended_at < last_at for ended_at in ends.emulator)
    return by_another or len(launched) > _EXECUTIONS or not (first in failed or unheard)
