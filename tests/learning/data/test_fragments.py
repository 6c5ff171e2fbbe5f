"""Experience side by side are the same fragments, taken apart again or saved and loaded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.data.fragments import fragments_from, fragments_of
from learning.networks.building import build_network
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Experience, side_by_side
from shared.trajectory.trajectory import Trajectory
from tests.learning.trajectories import CONTINUOUS, make_trajectory

NETWORK = build_network(CONTINUOUS, PpoHyperparameters(hidden_sizes=(4,)), seed=0)


def trajectory(index: int, *, seed: int = 0, num_envs: int = 2, num_steps: int = 9) -> Trajectory:
    made = make_trajectory(
        CONTINUOUS, NETWORK, actor_index=index, seed=seed, num_steps=num_steps, num_envs=num_envs
    )
    return made.replaced(policy_version=10 + index)


def assert_equal(one: Experience, other: Experience) -> None:
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def final_observation_at(fragments: Experience, t: int, b: int) -> np.ndarray:
    rows = list(zip(*fragments.final_rows, strict=True))
    return np.asarray(fragments.final_observation[rows.index((t, b))])


@given(seed=st.integers(0, 2**31), widths=st.lists(st.integers(1, 4), min_size=1, max_size=4))
@settings(max_examples=25)
def test_columns_are_the_trajectories_in_their_order(seed: int, widths: list[int]) -> None:
    parts = [trajectory(i, seed=seed, num_envs=width) for i, width in enumerate(widths)]
    whole = side_by_side([fragments_of(part) for part in parts])
    assert whole.num_steps == sum(part.num_steps for part in parts)
    first = 0
    for part in parts:
        assert_equal(whole.between(first, first + part.num_envs), fragments_of(part))
        cut = np.argwhere(part.truncated & ~part.terminated)
        for (t, b), final in zip(cut, part.final_observation, strict=True):
            np.testing.assert_array_equal(final_observation_at(whole, t, first + b), final)
        first += part.num_envs
    versions = [10 + i for i, width in enumerate(widths) for _ in range(width)]
    assert whole.policy_version.tolist() == versions


def test_joining_in_steps_is_joining_at_once() -> None:
    a, b, c = (fragments_of(trajectory(i)) for i in range(3))
    assert_equal(side_by_side([side_by_side([a, b]), c]), side_by_side([a, b, c]))


def test_arrays_make_the_fragments_again() -> None:
    made = side_by_side([fragments_of(trajectory(i)) for i in range(2)])
    assert_equal(fragments_from(made.arrays), made)


def test_fragments_of_different_lengths_do_not_go_together() -> None:
    short, long = trajectory(0, num_steps=3), trajectory(1, num_steps=4)
    with pytest.raises(ValueError, match=r"must have one length, got \[3, 4\]"):
        side_by_side([fragments_of(short), fragments_of(long)])


@pytest.mark.parametrize("name", list(fragments_of(trajectory(0)).arrays))
def test_a_saved_field_of_another_shape_is_refused_by_name(name: str) -> None:
    arrays = fragments_of(trajectory(0)).arrays
    arrays[name] = np.concatenate((arrays[name], arrays[name]))
    with pytest.raises(ValueError, match="shape|final observations for"):
        fragments_from(arrays)


@pytest.mark.parametrize("name", ["reward", "terminated", "log_prob", "policy_version"])
def test_a_saved_field_of_another_type_is_refused_by_name(name: str) -> None:
    arrays = fragments_of(trajectory(0)).arrays
    arrays[name] = arrays[name].astype(np.float64)
    with pytest.raises(ValueError, match=f"{name} has dtype float64"):
        fragments_from(arrays)


def test_a_missing_field_is_refused() -> None:
    arrays = fragments_of(trajectory(0)).arrays
    del arrays["action"]
    with pytest.raises(ValueError, match="holds arrays"):
        fragments_from(arrays)
