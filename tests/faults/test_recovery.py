"""Several processes killed in the middle of a round, and started again: the job goes on at once.

None of these tests bounds a time. A job that waited for its round's deadline, twelve minutes, would
exhaust the tests' patience.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.runs import final_weights, timeless_rounds, tiny, train, wait_finished, wait_until
from tests.faults.rig import Rig, rig

SPEC = tiny(
    seed=4,
    scaling={"policy": "fixed", "num_actors": 8},
    evaluation={"every_rounds": 2, "episodes": 2},
    stop={"max_rounds": 6},
)


def _break(broken: Rig, job_id: str, names: Sequence[str]) -> None:
    """Kill processes while all actors of a round, and maybe episodes, wait to start."""
    wait_until(broken.client, job_id, lambda job: job.progress.rounds >= 1, broken.system)
    broken.break_actors(start_delay_ms=60_000.0)
    wait_until(broken.client, job_id, lambda _: broken.stats()["in_flight"] >= 8, broken.system)
    for name in names:
        broken.system.kill(name)


@pytest.mark.parametrize(
    "names",
    [
        ("learner", "emulator", "scaler"),
        ("learner", "emulator", "cache"),
        ("scaler", "emulator"),
        ("learner", "scaler", "emulator", "cache"),
    ],
    ids="-".join,
)
def test_what_was_in_flight_is_launched_again_and_the_record_is_the_same(
    runs_dir: Path, names: Sequence[str]
) -> None:
    with rig(runs_dir) as broken:
        whole = train(broken.client, SPEC)
        job_id = broken.client.submit(SPEC).job_id
        _break(broken, job_id, names)
        broken.system.restart(*names)
        assert wait_finished(broken.client, job_id).status == "succeeded"
        attempts = [record.plan.attempt for record in broken.client.every_round(job_id)]
        # None where the scaler lived on: its actors wait for the emulator, and may find a policy.
        assert sum(attempts) <= 1
        found, expected = (timeless_rounds(runs_dir, name) for name in (job_id, whole.job_id))
        for made, wanted in zip(found, expected, strict=True):
            assert (made["result"], made["evaluation"]) == (wanted["result"], wanted["evaluation"])
        assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)


def test_an_emulator_that_is_asked_to_end_costs_no_trajectory(runs_dir: Path) -> None:
    with rig(runs_dir) as broken:
        whole = train(broken.client, SPEC)
        job_id = broken.client.submit(SPEC).job_id
        wait_until(broken.client, job_id, lambda job: job.progress.rounds >= 1, broken.system)
        broken.break_actors(start_delay_ms=500.0)
        wait_until(broken.client, job_id, lambda _: broken.stats()["in_flight"] >= 8, broken.system)
        broken.system.terminate("emulator")
        broken.system.restart("emulator")
        assert wait_finished(broken.client, job_id).status == "succeeded"
        counts = broken.counts(broken.client.get(job_id))
        assert [(c["used"], c["launched"]) for c in counts] == 6 * [(8, 8)]
        assert final_weights(runs_dir, job_id) == final_weights(runs_dir, whole.job_id)
