"""Jobs of both kinds at a time, each on a learner of its kind: real processes, a whole system."""

from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.money.prices import AWS_US_EAST_1_2026_11 as PRICES
from tests.e2e.runs import tiny, wait_finished, wait_until

_KINDS = {
    "learner": {"NITRO_LEARNER_KIND": "gpu", "NITRO_DEVICE": "cpu"},
    "learner-2": {"NITRO_LEARNER_KIND": "cpu"},
}


def test_jobs_of_both_kinds_run_side_by_side_each_on_its_learner_at_its_price(
    tmp_path: Path,
) -> None:
    many = {"max_rounds": 2000, "budget_usd": 1000}
    with (
        LocalSystem(tmp_path, learners=2, environment=_KINDS) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        on_cores = client.submit(tiny(learner="auto", stop=many)).job_id
        wait_until(client, on_cores, lambda job: job.progress.rounds >= 1, system)
        waits = client.submit(tiny(learner="cpu")).job_id
        on_gpu = client.submit(tiny(learner="gpu")).job_id
        # It goes past the one that waits for the other kind, while that one's learner is busy.
        assert wait_finished(client, on_gpu).status == "succeeded"
        assert (client.get(on_cores).status, client.get(waits).status) == ("running", "queued")
        client.stop(on_cores)
        assert wait_finished(client, waits).status == "succeeded"
        prices = {
            job_id: {x.unit_price_usd for x in client.every_line(job_id) if x.item == "learner"}
            for job_id in (on_cores, waits, on_gpu)
        }
    fargate = PRICES.fargate_usd_per_s(vcpu=2, memory_gb=4)
    assert prices == {
        on_cores: {fargate},
        waits: {fargate},
        on_gpu: {PRICES.learner_usd_per_s("g6.2xlarge")},
    }
