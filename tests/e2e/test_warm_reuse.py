"""Idle environments are let go of unless a job has them pinged: real actors, a whole system."""

from collections.abc import Iterator

import httpx
import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import Warm
from tests.e2e.runs import tiny, wait_finished, wait_until
from tests.patience import ANSWER_S

_QUIET_ROUNDS = 160
"""Rounds of a single actor between two that need a second environment, for their evaluation. They
take twice as long on a fast machine as an environment may idle."""
IDLE_OUT = {
    "emulator": {"NITRO_EMULATOR_IDLE_S": "2", "NITRO_EMULATOR_PROCESSES": "2"},
    "scaler": {
        "NITRO_KEEP_ALIVE": "true",
        "NITRO_PING_EVERY_S": "0.2",
        "NITRO_RECONCILE_EVERY_S": "0.05",
    },
}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSystem]:
    with LocalSystem(tmp_path_factory.mktemp("runs"), environment=IDLE_OUT) as running:
        yield running


def num_let_go(system: LocalSystem) -> int:
    operator = {"Authorization": f"Bearer {system.lambda_token}"}
    url = f"{system.lambda_url}/emulator/stats"
    return int(httpx.get(url, headers=operator, timeout=ANSWER_S).json()["environments_let_go"])


@pytest.mark.parametrize(("warm", "stays"), [("reuse", True), ("none", False)])
def test_pings_keep_an_environment_that_a_later_round_needs(
    system: LocalSystem, warm: Warm, stays: bool
) -> None:
    spec = tiny(
        warm=warm,
        actors={"min": 1, "max": 2},
        scaling={"policy": "fixed", "num_actors": 1},
        evaluation={"every_rounds": _QUIET_ROUNDS, "episodes": 1},
        stop={"max_rounds": _QUIET_ROUNDS + 2},
    )
    with NitroClient(system.api_url, system.token) as client:
        job_id = client.submit(spec).job_id
        wait_until(client, job_id, lambda job: job.progress.rounds >= 1, system)
        before = num_let_go(system)
        wait_until(client, job_id, lambda job: job.progress.rounds >= _QUIET_ROUNDS, system)
        assert (num_let_go(system) == before) == stays
        assert wait_finished(client, job_id).stop_reason == "max_rounds"
        assert "provisioned_concurrency" not in client.cost(job_id).by_item
