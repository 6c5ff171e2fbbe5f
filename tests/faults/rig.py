"""The shared local system and the switch for faults, for tests that break it on purpose."""

from pathlib import Path

import httpx

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import Job
from tests.e2e.runs import timeless_rounds, wait_until
from tests.patience import ANSWER_S

_ORDERLY_S = 120.0
_GRADIENTS = "/emulator/functions/nitro-gradient"


class Rig:
    """A system, its client, and the switch for faults."""

    def __init__(self, system: LocalSystem, client: NitroClient, runs_dir: Path) -> None:
        self.system = system
        self.client = client
        self.runs_dir = runs_dir
        self._operator = {"Authorization": f"Bearer {system.lambda_token}"}

    def break_actors(self, **faults: float) -> None:
        self._break("/emulator", **faults)

    def break_gradients(self, **faults: float) -> None:
        """Break learner functions alone."""
        self._break(_GRADIENTS, **faults)

    def _break(self, root: str, **faults: float) -> None:
        response = httpx.put(
            f"{self.system.lambda_url}{root}/faults",
            json=faults,
            headers=self._operator,
            timeout=ANSWER_S,
        )
        assert response.is_success, response.text

    def terminate(self, name: str) -> None:
        """Ask a process to end in an orderly way, and wait until it has."""
        process = self.system.process(name)
        process.terminate()
        process.wait(_ORDERLY_S)
        assert process.exit_code() is not None, process.log_tail()

    def stats(self, *, gradients: bool = False) -> dict[str, int]:
        """Return the emulator's counts of actors, or of learner functions."""
        root = _GRADIENTS if gradients else "/emulator"
        counts: dict[str, int] = httpx.get(
            f"{self.system.lambda_url}{root}/stats", headers=self._operator, timeout=ANSWER_S
        ).json()
        return counts

    def gradients(self, job: Job) -> list[GradientRecord]:
        """What became of the gradients of every round that had any."""
        lines = timeless_rounds(self.runs_dir, job.job_id)
        found = (line["result"]["gradients"] for line in lines if line["result"])
        return [GradientRecord.model_validate(record) for record in found if record]

    def counts(self, job: Job) -> list[dict[str, int]]:
        """Trajectory counts of every round."""
        lines = timeless_rounds(self.runs_dir, job.job_id)
        return [line["result"]["trajectories"] for line in lines if line["result"]]

    def hold_round(self, job_id: str, *, after: int, delay_ms: float) -> None:
        """Wait until so many rounds are done and all eight actors of another wait to start."""
        wait_until(self.client, job_id, lambda job: job.progress.rounds >= after, self.system)
        self.break_actors(start_delay_ms=delay_ms)
        wait_until(self.client, job_id, lambda _: self.stats()["in_flight"] >= 8, self.system)
