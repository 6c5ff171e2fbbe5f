"""Which horizon an environment has, against the runs that decided it."""

import json
from statistics import median

import pytest

from experiments.store import packed_cells
from shared.hyperparameters.horizons import STANDARD_HORIZONS, preset_horizon
from tests.documents import ROOT

CELLS = packed_cells(ROOT / "experiments" / "results" / "horizon")


def final_returns(shape: str, horizon: str, env_id: str) -> list[float]:
    """One of each seed."""
    found = [line for cell, line in CELLS.items() if cell[:2] == (f"{shape}, {horizon}", env_id)]
    return [json.loads(line)["outcome"]["evaluations"][-1]["mean_return"] for line in found]


@pytest.mark.parametrize(("family", "horizon"), STANDARD_HORIZONS.items())
def test_an_environment_has_a_number_where_the_median_run_with_it_was_better(
    family: str, horizon: int
) -> None:
    # With fragments as long as the horizon, `fragment` stands for it: no episode ends early.
    for shape, condition in (("32 x 64", "fragment"), ("8 x 256", str(horizon))):
        cut, whole = (final_returns(shape, of, f"{family}-v5") for of in (condition, "limit"))
        assert min(len(cut), len(whole)) >= 3
        assert median(cut) > median(whole)


def test_a_horizon_holds_for_every_version_and_the_paper_has_none() -> None:
    assert preset_horizon("standard", "HalfCheetah-v4") == 64
    assert preset_horizon("standard", "HalfCheetah-v5") == 64
    assert preset_horizon("standard", "Walker2d-v5") == preset_horizon("standard") == "limit"
    assert preset_horizon("paper", "HalfCheetah-v5") == "fragment"
