"""Which policies fit a job, and how a job that does not is told."""

import pytest
from pydantic import ValidationError

from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import POLICIES, ActorRange
from tests.services.scaler.scaling.seen import biased_agent

AGENT = biased_agent(0.0, 0.0).model_dump()


@pytest.mark.parametrize(
    "scaling",
    [
        {"policy": "nitro", "convention": "artifact"},
        {"policy": "fixed", "num_actors": 8},
        {"policy": "random"},
        {"policy": "random", "mean_actors": 8.0},
        {"policy": "kungfu", "smoothing": 0.0},
        {"policy": "hydrozoa", "every_rounds": 1},
        {"policy": "minionsrl", "agent": AGENT},
        {"policy": "reward_window", "flat": 0.0},
        {"policy": "schedule", "num_actors": [2, 8]},
    ],
    ids=str,
)
def test_every_policy_is_part_of_a_job_and_survives_json(scaling: dict[str, object]) -> None:
    spec = JobSpec.model_validate({"scaling": scaling, "actors": {"min": 2, "max": 8}})
    assert spec.scaling.policy == scaling["policy"]
    assert isinstance(spec.scaling, POLICIES[spec.scaling.policy])
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(("range_of", "number"), [((2, 8), 8), ((20, 40), 20), ((8, 64), 16)])
def test_where_nothing_is_measured_the_constant_lies_inside_the_range(
    range_of: tuple[int, int], number: int
) -> None:
    fewest, most = range_of
    raw = {"algorithm": "sac", "actors": {"min": fewest, "max": most}}
    assert JobSpec.model_validate(raw).scaling.asked_for() == {"num_actors": number}
    with pytest.raises(ValueError, match="must not exceed max"):
        JobSpec.model_validate({"algorithm": "sac", "actors": {"min": 9, "max": 2}})


@pytest.mark.parametrize(
    ("scaling", "complaint"),
    [
        ({"policy": "fixed", "num_actors": 9}, r"scaling.num_actors \(9\) must lie inside actors"),
        ({"policy": "schedule", "num_actors": [8, 1]}, r"scaling.num_actors.1 \(1\)"),
        ({"policy": "random", "mean_actors": 8.5}, r"scaling.mean_actors \(8.5\)"),
        ({"policy": "schedule", "num_actors": []}, "at least 1 item"),
        ({"policy": "kungfu", "smoothing": 1.0}, "less than 1"),
        ({"policy": "hydrozoa", "every_rounds": 0}, "greater than or equal to 1"),
        ({"policy": "reward_window", "window": 1}, "greater than or equal to 2"),
        ({"policy": "nitro", "convention": "code"}, "'paper' or 'artifact'"),
        ({"policy": "minionsrl"}, "agent"),
        ({"policy": "guess"}, "must have a policy, one of nitro, fixed, .*; got 'guess'"),
    ],
    ids=str,
)
def test_a_policy_that_does_not_fit_is_refused_by_field(
    scaling: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        JobSpec.model_validate({"scaling": scaling, "actors": {"min": 2, "max": 8}})


def test_an_agent_that_cannot_reach_the_range_is_refused() -> None:
    scaling = {"policy": "minionsrl", "agent": AGENT}
    with pytest.raises(ValidationError, match=r"scaling.agent \(2 choices\)"):
        JobSpec.model_validate({"scaling": scaling, "actors": {"min": 3, "max": 8}})


def test_a_range_clips() -> None:
    assert [ActorRange(min=2, max=4).clip(n) for n in (0, 3, 9)] == [2, 3, 4]
