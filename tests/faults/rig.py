"""A local system and the switch for faults, for tests that break it on purpose."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.jobs import Job
from tests.e2e.runs import FAST_LEASES, timeless_rounds
from tests.patience import ANSWER_S


class Rig:
    """A system of its own, its client, and the switch for faults."""

    def __init__(self, system: LocalSystem, client: NitroClient, runs_dir: Path) -> None:
        self.system = system
        self.client = client
        self.runs_dir = runs_dir
        self._operator = {"Authorization": f"Bearer {system.lambda_token}"}

    def break_actors(self, **faults: float) -> None:
        response = httpx.put(
            f"{self.system.lambda_url}/emulator/faults",
            json=faults,
            headers=self._operator,
            timeout=ANSWER_S,
        )
        assert response.is_success, response.text

    def stats(self) -> dict[str, int]:
        counts: dict[str, int] = httpx.get(
            f"{self.system.lambda_url}/emulator/stats", headers=self._operator, timeout=ANSWER_S
        ).json()
        return counts

    def counts(self, job: Job) -> list[dict[str, int]]:
        """Trajectory counts of every round."""
        lines = timeless_rounds(self.runs_dir, job.job_id)
        return [line["result"]["trajectories"] for line in lines if line["result"]]


@contextmanager
def rig(runs_dir: Path, **scaler: str) -> Iterator[Rig]:
    environment = {"scaler": {**FAST_LEASES["scaler"], **scaler}}
    with ExitStack() as stack:
        system = stack.enter_context(LocalSystem(runs_dir, environment=environment))
        client = stack.enter_context(NitroClient(system.api_url, system.token))
        yield Rig(system, client, runs_dir)
