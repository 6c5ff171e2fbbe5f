from learning.algorithms.policy_update import PolicyUpdate, UpdateTally


def test_updates_are_counted_and_averaged_but_for_the_largest_lag() -> None:
    tally = UpdateTally()
    tally.add(PolicyUpdate(stats={"loss": 1.0, "policy_lag_max": 5.0, "fresh": 1.0}))
    tally.add(PolicyUpdate(stats={"loss": 2.0, "policy_lag_max": 2.0, "fresh": 0.0}))
    tally.add(PolicyUpdate(stats={"loss": 6.0, "kl": 0.5, "fresh": 0.0}))
    assert tally.take() == {
        "loss": 3.0,
        "policy_lag_max": 5.0,
        "kl": 0.5,
        "updates": 3.0,
        "replays": 2.0,
    }


def test_without_updates_only_the_counts_are_told() -> None:
    tally = UpdateTally()
    tally.add(PolicyUpdate(stats={"loss": 1.0}))
    tally.take()
    assert tally.take() == {"updates": 0.0, "replays": 0.0}
