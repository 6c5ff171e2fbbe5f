"""Whether a sweep's job has made all it was to make."""

import pytest

from nitro.sweeps.outcome import made_all_rounds
from shared.contracts.jobs import JobProgress
from shared.contracts.stop_rule import MAX_ROUNDS, StopRule
from tests.nitro.synthetic_run import job


@pytest.mark.parametrize(
    ("stop", "rounds", "env_steps", "made"),
    [
        ({"max_rounds": 5}, 5, 640, True),
        ({"max_rounds": 5}, 4, 10**9, False),
        ({"max_rounds": MAX_ROUNDS, "max_env_steps": 1000}, 3, 1000, True),
        ({"max_rounds": MAX_ROUNDS, "max_env_steps": 1000}, 3, 999, False),
    ],
)
def test_rounds_or_steps_end_a_job(
    stop: dict[str, int], rounds: int, env_steps: int, made: bool
) -> None:
    ended = job(progress=JobProgress(rounds=rounds, env_steps=env_steps))
    spec = ended.spec.model_copy(update={"stop": StopRule.model_validate(stop)})
    assert made_all_rounds(ended.model_copy(update={"spec": spec})) == made
