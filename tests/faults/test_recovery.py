"""Several processes killed in the middle of a round, and started again: the job goes on at once.

None of these tests bounds a time. A job that waited for its round's deadline, twelve minutes, would
exhaust the tests' patience.
"""

from collections.abc import Sequence

import pytest

from nitro.client.client import NitroClient
from shared.contracts.jobs import Job
from tests.e2e.runs import final_weights, timeless_rounds, tiny, train, wait_finished
from tests.faults.rig import Rig

SPEC = tiny(
    seed=4,
    scaling={"policy": "fixed", "num_actors": 8},
    evaluation={"every_rounds": 2, "episodes": 2},
    episodes={"horizon": "limit"},
    stop={"max_rounds": 12},
)


@pytest.fixture(scope="module")
def whole(client: NitroClient) -> Job:
    """A run that nothing disturbs."""
    return train(client, SPEC)


@pytest.mark.parametrize(
    "names",
    [
        ("learner", "emulator", "cache"),
        ("scaler", "emulator"),
        ("learner", "scaler", "emulator", "cache"),
    ],
    ids="-".join,
)
def test_what_was_in_flight_is_launched_again_and_the_record_is_the_same(
    broken: Rig, whole: Job, names: Sequence[str]
) -> None:
    job_id = broken.client.submit(SPEC).job_id
    broken.hold_round(job_id, after=1, delay_ms=60_000.0)
    for name in names:
        broken.system.kill(name)
    broken.system.restart(*names)
    assert wait_finished(broken.client, job_id).status == "succeeded"
    attempts = [record.plan.attempt for record in broken.client.every_round(job_id)]
    # None where the scaler lived on: its actors wait for the emulator, and may find a policy.
    assert sum(attempts) <= 1
    found, expected = (timeless_rounds(broken.runs_dir, name) for name in (job_id, whole.job_id))
    for made, wanted in zip(found, expected, strict=True):
        assert (made["result"], made["evaluation"]) == (wanted["result"], wanted["evaluation"])
    assert final_weights(broken.runs_dir, job_id) == final_weights(broken.runs_dir, whole.job_id)


def test_an_emulator_that_is_asked_to_end_costs_no_trajectory(broken: Rig, whole: Job) -> None:
    job_id = broken.client.submit(SPEC).job_id
    broken.hold_round(job_id, after=1, delay_ms=500.0)
    broken.terminate("emulator")
    broken.system.restart("emulator")
    assert wait_finished(broken.client, job_id).status == "succeeded"
    counts = broken.counts(broken.client.get(job_id))
    assert [(c["used"], c["launched"]) for c in counts] == 12 * [(8, 8)]
    assert final_weights(broken.runs_dir, job_id) == final_weights(broken.runs_dir, whole.job_id)
