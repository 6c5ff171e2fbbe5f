"""What a sweep found, from its rows."""

import pytest

from nitro.sweeps.report.results import results
from tests.nitro.sweeps.rows import ended, two_by_two


def test_each_setting_on_each_environment_has_a_line() -> None:
    found = results("name", two_by_two(), budget_usd=2.0)
    assert [(g.env_id, g.setting, g.seeds) for g in found.groups] == [
        ("CartPole-v1", "ppo", 4),
        ("CartPole-v1", "im_pact", 4),
        ("Acrobot-v1", "ppo", 4),
        ("Acrobot-v1", "im_pact", 4),
    ]
    first = found.groups[0].final_return
    assert first is not None
    assert first.value == 45.0  # the middle two of 30, 40, 50, 60
    assert found.groups[0].best_return == 60.0
    assert found.spent_usd == pytest.approx(0.16)


def test_over_all_environments_returns_are_scores_between_untrained_and_best() -> None:
    ppo, impact = results("name", two_by_two(), budget_usd=None).overall
    assert (ppo.setting, ppo.improvement) == ("ppo", None)
    # Gains are 10 and 20 a seed on both environments; the best interquartile mean is 50.
    assert impact.score.value == pytest.approx(1.0)
    assert ppo.score.value == pytest.approx(0.5)
    assert impact.improvement is not None
    # Pairs of (20, 40, 60, 80) above (10, 20, 30, 40): 1.5 + 3.5 + 4 + 4 of 16.
    assert impact.improvement.value == pytest.approx(13 / 16)


def test_rows_that_did_not_come_to_their_end_are_named_and_do_not_count() -> None:
    rows = [
        ended("CartPole-v1", "ppo", 1, (10.0, 50.0)),
        ended("CartPole-v1", "ppo", 2, (10.0, 20.0), status="budget", reason="0.1 USD used up"),
        ended("CartPole-v1", "ppo", 3, (10.0, 20.0), status="failed", reason="the actor died"),
    ]
    found = results("name", rows, budget_usd=0.1)
    (group,) = found.groups
    assert (group.seeds, group.jobs) == (1, 3)
    assert found.unfinished == [
        ("CartPole-v1/ppo/2", "budget", "0.1 USD used up"),
        ("CartPole-v1/ppo/3", "failed", "the actor died"),
    ]
    assert found.overall == []
