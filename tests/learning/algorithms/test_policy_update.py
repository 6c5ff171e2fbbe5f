from learning.algorithms.policy_update import PolicyUpdate, UpdateTally, summary


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


def noise(variance: float, squared_norm: float) -> PolicyUpdate:
    return PolicyUpdate(
        stats={"gradient_variance": variance, "gradient_squared_norm": squared_norm}
    )


def test_a_noise_scale_is_a_quotient_of_means_also_of_summaries() -> None:
    tally = UpdateTally()
    summaries = []
    for update in (noise(8.0, 1.0), noise(4.0, -0.5), noise(9.0, 1.0)):
        tally.add(update)
        summaries.append(tally.take())
    assert [each.get("noise_scale") for each in summaries] == [8.0, None, 9.0]
    assert summary(summaries)["noise_scale"] == 21.0 / 1.5


def test_where_noise_hides_the_gradient_there_is_no_scale() -> None:
    assert "noise_scale" not in summary([noise(8.0, 0.0).stats])
    assert "noise_scale" not in summary([noise(8.0, 1e-320).stats])  # it would be infinite


def test_without_updates_only_the_counts_are_told() -> None:
    tally = UpdateTally()
    tally.add(PolicyUpdate(stats={"loss": 1.0}))
    tally.take()
    assert tally.take() == {"updates": 0.0, "replays": 0.0}
