"""The limits of a job that is resumed, as they are typed."""

from typing import Any

import pytest

from nitro.client.beginning import Resumption
from nitro.client.client import NitroClient
from nitro.errors import CommandError
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.nitro.synthetic_run import job


class Recorded(NitroClient):
    """Knows one job of 4 rounds of 2,048 steps, and what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "a")
        actors = {"min": 2, "max": 2}
        fields = {"actors": actors, "samples_per_round": 2048, "stop": {"max_rounds": 4}}
        self.job = job(spec=JobSpec.model_validate(fields))
        self.asked: dict[str, object] = {}

    def get(self, job_id: str) -> Job:
        return self.job

    def resume(self, job_id: str, **limits: object) -> Job:
        self.asked = limits
        return self.job


@pytest.mark.parametrize(("steps", "rounds"), [(8192, 4), (8193, 5), (20_480, 10)])
def test_the_steps_of_a_job_limited_by_rounds_are_asked_for_as_rounds(
    steps: int, rounds: int
) -> None:
    with Recorded() as client:
        Resumption(job_id="a", max_env_steps=steps).begin(client)
        assert (client.asked["max_rounds"], client.asked["max_env_steps"]) == (rounds, None)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_env_steps": 4000},
            "^--total-steps: 4,000 is below the job's 8,192 steps; it can only rise$",
        ),
        (
            {"max_env_steps": 10_000, "max_rounds": 9},
            "^--total-steps: give it or --rounds, not both$",
        ),
    ],
)
def test_steps_that_do_not_go_are_refused_as_they_were_typed(
    limits: dict[str, Any], message: str
) -> None:
    with Recorded() as client:
        with pytest.raises(CommandError, match=message):
            Resumption(job_id="a", **limits).begin(client)
        assert client.asked == {}
