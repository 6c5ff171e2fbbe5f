from services.scaler.scaling.schedule import SchedulePolicy
from shared.contracts.scaling_spec import ScheduleScaling
from tests.services.scaler.scaling.seen import seen


def test_a_schedule_is_followed_and_its_last_entry_holds_with_a_word_about_it() -> None:
    policy = SchedulePolicy(ScheduleScaling(policy="schedule", num_actors=(8, 64, 16)))
    decisions = [policy.decide(seen(k)) for k in range(5)]
    assert [d.requested for d in decisions] == [8, 64, 16, 16, 16]
    assert ["past the end" in d.reason for d in decisions] == [False, False, False, True, True]
