"""The benchmark of ARS's iterations: both contestants do the same work."""

import pytest

from benchmarks.claims.actors.search_rollout import bare_loop, iterating


def test_the_bare_loop_plays_the_same_episodes() -> None:
    # The bare loop computes actions in float64, Nitro in float32.
    assert iterating()().stats["return_mean"] == pytest.approx(bare_loop()() / 2, abs=1e-5)
