"""Which horizon an environment has, against the runs that decided it."""

import json
from pathlib import Path

import pytest

import experiments
from shared.hyperparameters.horizons import STANDARD_HORIZONS, preset_horizon

CELLS = Path(experiments.__file__).with_name("results") / "horizon" / "cells"
CUT_ALIKE = {64: "fragment"}
"""What fragments of 64 steps do where no episode ends early."""


def final_returns(env_id: str, horizon: object) -> list[float]:
    """Of the runs with 32 actors of 64 steps, one a seed."""
    found = sorted(CELLS.glob(f"32-x-64-{horizon}/{env_id}/*.json"))
    return [
        json.loads(path.read_text())["outcome"]["evaluations"][-1]["mean_return"] for path in found
    ]


@pytest.mark.parametrize(("family", "horizon"), STANDARD_HORIZONS.items())
def test_an_environment_has_a_number_of_its_own_where_every_run_with_it_was_better(
    family: str, horizon: int
) -> None:
    with_it = final_returns(f"{family}-v5", CUT_ALIKE.get(horizon, horizon))
    with_limit = final_returns(f"{family}-v5", "limit")
    assert min(len(with_it), len(with_limit)) >= 3
    assert min(with_it) > max(with_limit)


def test_a_horizon_holds_for_every_version_and_the_paper_has_none() -> None:
    assert preset_horizon("standard", "HalfCheetah-v4") == 64
    assert preset_horizon("standard", "HalfCheetah-v5") == 64
    assert preset_horizon("standard", "Walker2d-v5") == preset_horizon("standard") == "limit"
    assert preset_horizon("paper", "HalfCheetah-v5") == "fragment"
