"""Environments of the examples."""

import gymnasium
import pytest

from experiments.example_packages import HIGHWAY, highway_problem


def test_the_slow_simulator_is_registered_where_its_library_is_installed() -> None:
    pytest.importorskip("highway_env")
    assert highway_problem() is None
    assert HIGHWAY in gymnasium.registry
