"""A learner of two processes, one of which is killed in the middle of a job."""

import os
import re
import signal
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.e2e.runs import FAST_LEASES, final_weights, tiny, train, wait_finished, wait_until

SPEC = tiny(seed=3, evaluation={"every_rounds": 0}, stop={"max_rounds": 20})
TWO_RANKS = {"learner": {"NITRO_DEVICE": "cpu"}}


def test_a_rank_that_is_killed_costs_a_round_and_no_weight(tmp_path: Path) -> None:
    with (
        LocalSystem(tmp_path, learner_ranks=2, environment=FAST_LEASES | TWO_RANKS) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        whole = train(client, SPEC)
        assert whole.status == "succeeded", whole.error
        job_id = client.submit(SPEC).job_id
        wait_until(client, job_id, lambda job: job.progress.rounds >= 2, system)
        path = system.logs / "learner.log"
        started = re.findall(r"ranks started pids=\((\d+),\)", path.read_text())
        os.kill(int(started[-1]), signal.SIGKILL)
        job = wait_finished(client, job_id)
        log = path.read_text()
    assert (job.status, job.error) == ("succeeded", None)
    assert "rank 1 ended by SIGKILL" in log
    assert len(re.findall(r"ranks started pids", log)) == 2
    assert final_weights(tmp_path, job_id) == final_weights(tmp_path, whole.job_id)
