"""Horizons side by side, from made-up runs."""

from experiments.grid import CellId, Scale
from experiments.studies.rounds.horizon import EXPERIMENT
from tests.experiments.made_up import outcome


def test_one_table_has_the_median_run_of_every_horizon() -> None:
    ends = {"32 x 64, fragment": (7.0, 9.0, 8000.0), "2 x 1024, limit": (4.0,)}
    made = {
        CellId(condition, "Walker2d-v5", seed): outcome([0.0, end])
        for condition, of_seeds in ends.items()
        for seed, end in enumerate(of_seeds)
    }
    table = EXPERIMENT.find(Scale(seeds=3, quick=False), made).tables[0]
    assert table.columns == ("environment", "actors x steps", "fragment", "64", "256", "limit")
    assert table.rows == (
        ("Walker2d-v5", "32 x 64", "9 (7, 8,000)", None, None, None),
        ("Walker2d-v5", "2 x 1024", None, None, None, "4 (4, 4)"),
    )
