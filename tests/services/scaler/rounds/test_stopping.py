import pytest

from services.scaler.rounds.decision import StopConditions, stop_reason
from shared.contracts.job_spec import StopRule


def conditions(**changes: object) -> StopConditions:
    fields: dict[str, object] = {
        "round_index": 3,
        "asked_to_stop": False,
        "latest_return": None,
        "wall_s": 10.0,
        **changes,
    }
    return StopConditions(**fields)  # type: ignore[arg-type]


RULE = StopRule(max_rounds=5, target_return=100.0, max_wall_s=60.0)


def test_a_job_in_the_middle_goes_on() -> None:
    assert stop_reason(RULE, conditions(latest_return=99.9)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round_index": 5}, "max_rounds"),
        ({"latest_return": 100.0}, "target_return"),
        ({"wall_s": 60.0}, "max_wall"),
        ({"asked_to_stop": True}, "user"),
        ({"asked_to_stop": True, "round_index": 5, "latest_return": 200.0}, "user"),
        ({"round_index": 5, "latest_return": 200.0, "wall_s": 99.0}, "target_return"),
        ({"round_index": 5, "wall_s": 99.0}, "max_rounds"),
    ],
)
def test_the_first_condition_met_wins(changes: dict[str, object], reason: str) -> None:
    stopped = stop_reason(RULE, conditions(**changes))
    assert stopped is not None
    assert stopped[0] == reason
    assert stopped[1]


def test_conditions_that_are_not_set_never_stop() -> None:
    rule = StopRule(max_rounds=5)
    assert stop_reason(rule, conditions(latest_return=1e9, wall_s=1e9)) is None


def test_a_negative_target_is_a_target() -> None:
    rule = StopRule(target_return=-100.0)
    assert stop_reason(rule, conditions(latest_return=-150.0)) is None
    assert stop_reason(rule, conditions(latest_return=-100.0)) is not None


def test_a_deployment_bounds_a_job_that_bounds_itself_not() -> None:
    rule = StopRule(max_rounds=5)
    assert stop_reason(rule, conditions(since_start_s=3599.0, longest_s=3600.0)) is None
    stopped = stop_reason(rule, conditions(since_start_s=3600.0, longest_s=3600.0))
    assert stopped is not None
    assert stopped[0] == "max_wall"
    assert "NITRO_LONGEST_JOB_S" in stopped[1]
