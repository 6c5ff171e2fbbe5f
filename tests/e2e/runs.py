"""Starting whole systems in tests, waiting for jobs, and comparing what they wrote."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem, LocalSystemError
from shared.artifacts.store import COST_FILE
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED, Job, JobStatus

PATIENCE_S = 240.0
"""Bound on any wait: far above what the work takes, so that a hang ends the test with a message."""

FAST_LEASES = {
    "scaler": {
        "NITRO_LEASE_TTL_S": "3",
        "NITRO_HEARTBEAT_EVERY_S": "0.3",
        "NITRO_CLIENT_GRACE_S": "2",
        # Asking an actor once more would be one more invocation, which a fault may strike.
        "NITRO_ENVIRONMENT_TTL_S": "3600",
    }
}
"""A dead learner's job is claimed again soon, and one whose client is dead ends soon."""

_MONEY = ("settled", "settled_from", "settled_rounds", "spent_usd")
"""What a plan says of the bill."""

TWO_CORES = {"learner": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}}
"""What the learner's libraries would find on such a machine; results must not depend on it."""


def tiny(**changes: Any) -> JobSpec:
    """A CartPole job whose rounds take a fraction of a second."""
    body: dict[str, Any] = {
        "env_id": "CartPole-v1",
        "steps_per_actor": 64,
        "actors": {"min": 2, "max": 8},
        "scaling": {"policy": "nitro"},
        "hyperparameters": {"num_epochs": 2, "hidden_sizes": [32, 32], "learning_rate": 0.003},
        "stop": {"max_rounds": 4},
        "evaluation": {"every_rounds": 2, "episodes": 2},
        "detector": {"num_samples": 64},
    }
    return JobSpec.model_validate({**body, **changes})


def tiny_search(**changes: Any) -> JobSpec:
    """Return three rounds of ARS in CartPole with four actors, and one evaluation."""
    body: dict[str, Any] = {
        "env_id": "CartPole-v1",
        "algorithm": "ars",
        "scaling": {"policy": "fixed", "num_actors": 4},
        "actors": {"min": 4, "max": 4},
        "stop": {"max_rounds": 3},
        "evaluation": {"every_rounds": 3, "episodes": 1},
    }
    return JobSpec.model_validate({**body, **changes})


def wait_until(
    client: NitroClient, job_id: str, condition: Callable[[Job], bool], system: LocalSystem
) -> Job:
    """Return the job once the condition holds; fail when a process died or patience ends."""
    give_up_at = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition(job := client.get(job_id)):
        system.check()
        assert time.monotonic() < give_up_at, f"{job_id} is {job.status} at {job.progress}"
        assert job.status not in FINISHED, f"{job_id} ended: {job.status} {job.error}"
        pause.wait(0.02)
    return job


def wait_finished(client: NitroClient, job_id: str) -> Job:
    """Return the job once it has ended, however it did."""
    give_up_at = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while (job := client.get(job_id)).status not in FINISHED:
        assert time.monotonic() < give_up_at, f"{job_id} is {job.status} at {job.progress}"
        pause.wait(0.05)
    return job


def wait_summed_up(folder: Path) -> dict[str, Any]:
    """Return a run's `cost.json`: the learner writes it after it has reported the end."""
    give_up_at = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not (folder / COST_FILE).is_file():
        assert time.monotonic() < give_up_at, f"{folder} has no {COST_FILE}"
        pause.wait(0.02)
    summed_up: dict[str, Any] = json.loads((folder / COST_FILE).read_text())
    return summed_up


def mend(system: LocalSystem, client: NitroClient) -> None:
    """Start again what a test has ended, and stop the jobs that it left unfinished."""
    try:
        system.check()
    except LocalSystemError:
        for name in system.names:
            system.kill(name)
        system.restart(*system.names)
    unfinished: tuple[JobStatus, ...] = ("queued", "running")
    for status in unfinished:
        for job in client.every_job(status=status):
            client.stop(job.job_id)


def train(client: NitroClient, spec: JobSpec) -> Job:
    """Run one job to its end."""
    return wait_finished(client, client.admitted(client.submit(spec)).job_id)


def final_weights(runs_dir: Path, job_id: str) -> tuple[str, bytes, bytes]:
    """Name of the newest checkpoint, its full state and its policy, as bytes."""
    folder = sorted((runs_dir / job_id / "checkpoints").iterdir())[-1]
    return (
        folder.name,
        (folder / "state.safetensors").read_bytes(),
        (folder / "policy.safetensors").read_bytes(),
    )


def assert_equal_rounds(runs_dir: Path, job_id: str, expected_id: str) -> None:
    """Fail with the fields in which a job's record differs from another's, times left out."""
    found, expected = (timeless_rounds(runs_dir, name) for name in (job_id, expected_id))
    differences = "\n".join(_differences(found, expected, "rounds"))
    assert not differences, differences


def _differences(found: Any, expected: Any, where: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for name in found:
            yield from _differences(found[name], expected[name], f"{where}.{name}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{where}[{index}]")
    elif found != expected:
        yield f"{where}: {found!r}, expected {expected!r}"


def timeless_rounds(runs_dir: Path, job_id: str) -> list[dict[str, Any]]:
    """The record without times, money and the job's own name."""
    lines = []
    for text in (runs_dir / job_id / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        for name in ("job_id", *_MONEY, "age_s"):
            del line["plan"][name]
        if line["result"]:
            del line["result"]["timing"]
            # Rollouts that arrived before the learner was killed are not made again.
            del line["result"]["own"]
        if line["curvature"]:
            del line["curvature"]["elapsed_s"]
        lines.append(line)
    return lines
