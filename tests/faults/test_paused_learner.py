"""A learner that was paused wakes when another one has ended its job."""

from collections.abc import Iterator

import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from nitro.runs.finished import finished_folder
from shared.artifacts.store import JOB_FILE, ROUNDS_FILE
from shared.contracts.jobs import Job
from tests.campaign.pausing import pause_holder, wake, written_usd
from tests.e2e.runs import FAST_LEASES, tiny, wait_finished
from tests.faults.rig import Rig

SPEC = tiny(
    seed=3,
    scaling={"policy": "fixed", "num_actors": 8},
    evaluation={"every_rounds": 0},
    stop={"max_rounds": 12},
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    runs_dir = tmp_path_factory.mktemp("paused") / "runs"
    with (
        LocalSystem(runs_dir, learners=2, environment=FAST_LEASES) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        system.wait_ready()
        yield Rig(system, client, runs_dir)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_learner_that_was_paused_writes_nothing_once_another_has_ended_the_job(
    rig: Rig, deleted: bool
) -> None:
    job_id = rig.client.submit(SPEC).job_id
    folder = rig.runs_dir / job_id
    rig.hold_round(job_id, after=2, delay_ms=5000.0)
    rig.break_actors()
    paused = pause_holder(rig.system, rig.client, folder)
    job = wait_finished(rig.client, job_id)
    assert (job.status, job.progress.rounds) == ("succeeded", 12)
    if deleted:
        rig.client.delete(job_id)
        wake(rig.system, paused, job_id)
        assert not folder.exists()
        return
    assert finished_folder(folder) == folder  # whose learner has written its last word
    rounds = (folder / ROUNDS_FILE).read_bytes()
    wake(rig.system, paused, job_id)
    assert (folder / ROUNDS_FILE).read_bytes() == rounds
    assert Job.model_validate_json((folder / JOB_FILE).read_bytes()).status == "succeeded"
    billed = rig.client.cost(job_id).settled_usd
    assert written_usd(folder) == pytest.approx(billed, rel=1e-9)
