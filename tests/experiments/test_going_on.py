"""The same experiment with longer training episodes."""

import pytest

from experiments.catalogue import load
from experiments.going_on import with_horizon
from experiments.grid import Scale
from nitro.errors import CommandError
from shared.contracts.episode_rules import EpisodeRule
from shared.contracts.job_spec import JobSpec


def test_nothing_but_the_horizon_and_the_name_changes() -> None:
    experiment, scale = load("actors"), Scale(seeds=2, quick=True)
    changed = with_horizon(experiment, "limit")
    assert changed.name == "actors-limit"
    before, after = (made.plan(scale, {}).cells for made in (experiment, changed))
    assert [cell.id for cell in after] == [cell.id for cell in before]
    for one, other in zip(before, after, strict=True):
        assert isinstance(one.task, JobSpec)
        assert isinstance(other.task, JobSpec)
        assert other.task == one.task.model_copy(update={"episodes": EpisodeRule(horizon="limit")})


def test_an_experiment_without_jobs_has_no_horizon() -> None:
    with pytest.raises(CommandError, match="--horizon: surface trains no jobs"):
        with_horizon(load("surface"), "limit")


def test_an_experiment_about_horizons_keeps_its_own() -> None:
    changed = with_horizon(load("horizon"), "limit")
    with pytest.raises(CommandError, match="--horizon: horizon compares horizons"):
        changed.plan(Scale(seeds=1, quick=True), {})
