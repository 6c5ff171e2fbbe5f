"""Recurrent cells in NumPy against torch's own, and policies that remember."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from shared.contracts.environment_spec import ObservationSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.policy.recurrent import MAX_STATE, Cell, Recurrent
from shared.policy.spec import PolicySpec
from tests.learning.trajectories import CONTINUOUS, DISCRETE
from tests.shared.policy.recurrent_policies import recurrent_network, recurrent_policy

CELLS: tuple[Cell, ...] = ("lstm", "gru")


def rows(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("cell", CELLS)
def test_a_policy_remembers_as_torchs_own_cells_do(cell: str) -> None:
    policy = recurrent_policy(CONTINUOUS, cell)
    network = recurrent_network(CONTINUOUS, cell)
    weights = {name: each for name, each in network.named_parameters() if "policy" in name}
    theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](6, 5)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(weights["policy.1.weight"][:, :6])
        theirs.weight_hh_l0.copy_(weights["policy.1.weight"][:, 6:])
        theirs.bias_ih_l0.copy_(weights["policy.1.bias"])
        theirs.bias_hh_l0.zero_()
        seen = torch.from_numpy(rows(12, 3, 5))
        encoded = torch.tanh(seen @ weights["policy.0.weight"].t() + weights["policy.0.bias"])
        remembered, _ = theirs(encoded)
        expected = remembered @ weights["policy.2.weight"].t() + weights["policy.2.bias"]
    state = policy.new_state(3)
    for t, observation in enumerate(seen.numpy()):
        np.testing.assert_allclose(policy.outputs(observation, state), expected[t], atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_no_step_leads_beyond_the_largest_state(cell: Cell) -> None:
    cells = Recurrent(cell=cell, inputs=1, units=2)
    state = np.full((1, cells.state_size), MAX_STATE, np.float32)
    gates = np.full((1, cells.weight_shape[0]), 1e30, np.float32)  # all open
    for sign in (1, -1):
        for given in (gates, -gates):
            after = cells.following(np, given, np.zeros_like(given), sign * state)
            assert np.abs(after).max() <= MAX_STATE


@pytest.mark.parametrize("cell", CELLS)
def test_act_goes_on_until_reset_and_each_row_has_an_episode_of_its_own(cell: str) -> None:
    policy, seen = recurrent_policy(DISCRETE, cell, seed=3), rows(20, 2, 4)
    together = [policy.act(each) for each in seen]
    for row in range(2):
        policy.reset()
        alone = [policy.act(each) for each in seen[:, row]]
        assert alone == [each[row] for each in together]
    state = policy.new_state(2)
    np.testing.assert_array_equal([policy.act(each, state) for each in seen], together)
    policy.reset()
    policy.act(seen[0])
    with pytest.raises(PolicyError, match=r"call reset\(\)"):
        policy.act(seen[0, 0])


def test_what_follows_from_a_state_is_not_told_without_one() -> None:
    policy, seen = recurrent_policy(DISCRETE, "gru"), rows(2, 4)
    state, rng = policy.new_state(2), np.random.default_rng(0)
    action, log_prob = policy.sample(seen, rng, state)
    assert state.any()
    np.testing.assert_array_equal(policy.log_prob(seen, action, policy.new_state(2)), log_prob)
    for call in (policy.mode, policy.outputs, lambda o: policy.sample(o, rng)):
        with pytest.raises(PolicyError, match="is recurrent, so its outputs follow from its state"):
            call(seen)


def test_a_policy_without_a_memory_may_be_reset_all_the_same() -> None:
    arrays = {"policy.0.weight": np.ones((3, 4), np.float32), "policy.0.bias": rows(3)}
    said = {"format": "nitro-policy/1", "network": "mlp", "activation": "tanh"}
    policy = load_policy(arrays, {**said, "distribution": "categorical", "log_std": "none"})
    before = policy.act(rows(4))
    policy.reset()
    assert policy.act(rows(4)) == before
    assert policy.new_state(7).shape == (7, 0)


def test_equal_weights_give_equal_bits_whatever_came_before() -> None:
    seen = rows(9, 4, 4)

    def outputs(policy: NumpyPolicy) -> list[bytes]:
        state = policy.new_state(4)
        return [policy.outputs(each, state).tobytes() for each in seen]

    policy = recurrent_policy(DISCRETE, "lstm")
    first = outputs(policy)
    policy.act(seen[0])
    assert outputs(policy) == first == outputs(recurrent_policy(DISCRETE, "lstm"))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"recurrent": "rnn"}, "recurrent is 'rnn'"),
        ({"recurrent": "none"}, "policy.1.weight has shape|expected"),
    ],
)
def test_what_is_no_recurrent_policy_is_refused(
    cell: str, change: dict[str, str], told: str
) -> None:
    network = recurrent_network(CONTINUOUS, cell)
    with pytest.raises(PolicyError, match=told):
        load_policy(network.arrays(), network.spec.metadata() | change)


def test_cells_of_another_width_are_refused() -> None:
    network = recurrent_network(CONTINUOUS, "gru")
    arrays = network.arrays()
    arrays["policy.1.weight"] = arrays["policy.1.weight"][:-1]
    with pytest.raises(PolicyError, match=r"policy.1.weight has shape|policy.2.weight has shape"):
        load_policy(arrays, network.spec.metadata())


def test_images_are_refused_with_the_fix() -> None:
    images = DISCRETE.model_copy(
        update={"observation": ObservationSpec(shape=(4, 84, 84), dtype="uint8")}
    )
    with pytest.raises(ValueError, match=r"images, .* set hyperparameters.recurrent to none"):
        PolicySpec.of(images, PpoHyperparameters(recurrent="gru"))
