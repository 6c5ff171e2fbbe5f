"""What a recurrent network makes of whole fragments, against a plain loop over their steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.ppo import Ppo
from learning.data.batch_building import RAW, off_policy_batch, on_policy_batch
from learning.data.fragments import fragments_of
from learning.data.minibatch import ShuffledMinibatches
from learning.networks.building import build_network
from learning.networks.recurrent_network import RecurrentActorCritic
from shared.contracts.environment_spec import DiscreteActionSpec, ObservationSpec
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import side_by_side
from shared.trajectory.trajectory import Trajectory
from tests.learning.algorithms.off_policy_rounds import assert_same_state
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory
from tests.shared.policy.recurrent_policies import recurrent_network

DISCOUNT, LAMBDA = 0.9, 0.8
FLAT = DISCRETE.model_copy(update={"observation": ObservationSpec(shape=(4,), dtype="float32")})


def recurrent_trajectories(
    network: RecurrentActorCritic, *, num_steps: int = 24, seed: int = 0
) -> list[Trajectory]:
    """Fragments with ends of both kinds, whose log-probabilities are the actor's."""
    policy = load_policy(network.arrays(), network.spec.metadata())
    plain = build_network(CONTINUOUS, PpoHyperparameters(), seed=0)  # of any: see `log_prob`
    made = []
    for index in range(3):
        trajectory = make_trajectory(
            CONTINUOUS, plain, actor_index=index, seed=seed, num_steps=num_steps
        )
        rng = np.random.default_rng(index)
        first = rng.uniform(-1, 1, (2, network.spec.state_size)).astype(np.float32)
        state, log_prob = first.copy(), np.zeros_like(trajectory.log_prob)
        for t in range(num_steps):
            outputs = policy.outputs(trajectory.observation[t], state)
            log_prob[t] = policy.distribution.log_prob(outputs, trajectory.action[t])
            state[trajectory.terminated[t] | trajectory.truncated[t]] = 0.0
        made.append(trajectory.replaced(recurrent_state=first, log_prob=log_prob))
    return made


def plain_advantages(
    network: RecurrentActorCritic, trajectories: Sequence[Trajectory]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and advantages # [B, T], a step at a time."""

    def value(seen: NDArray[np.float32], state: torch.Tensor) -> tuple[float, torch.Tensor]:
        row = torch.cat((torch.ones(1), state, torch.from_numpy(seen)))
        _, values, left = network.evaluated(row.view(1, 1, -1))
        return float(values), left[0, 0]

    all_values, all_advantages = [], []
    for trajectory in trajectories:
        finals = iter(trajectory.final_observation)
        final_of = {
            (t, b): next(finals)
            for t, b in np.argwhere(trajectory.truncated & ~trajectory.terminated).tolist()
        }
        for b in range(trajectory.num_envs):
            num_steps = len(trajectory.reward)
            state = torch.from_numpy(trajectory.recurrent_state[b])
            values, deltas, carried = [], [], []
            for t in range(num_steps):
                now, left = value(trajectory.observation[t, b], state)
                terminated, truncated = trajectory.terminated[t, b], trajectory.truncated[t, b]
                following = 0.0
                if truncated and not terminated:
                    following, _ = value(final_of[t, b], left)
                elif not terminated:
                    following, _ = value(trajectory.observation[t + 1, b], left)
                ended = terminated or truncated
                values.append(now)
                deltas.append(float(trajectory.reward[t, b]) + DISCOUNT * following - now)
                carried.append(0.0 if ended else DISCOUNT * LAMBDA)
                state = torch.zeros_like(state) if ended else left
            advantages = np.zeros(num_steps + 1)
            for t in reversed(range(num_steps)):
                advantages[t] = deltas[t] + carried[t] * advantages[t + 1]
            all_values.append(values)
            all_advantages.append(advantages[:-1])
    return np.array(all_values), np.array(all_advantages)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_batch_has_what_a_loop_over_the_steps_finds(cell: str) -> None:
    network = recurrent_network(CONTINUOUS, cell)
    trajectories = recurrent_trajectories(network)
    batch = on_policy_batch(
        trajectories, network, discount=DISCOUNT, gae_lambda=LAMBDA, longest_sequence=10
    )
    values, advantages = plain_advantages(network, trajectories)
    np.testing.assert_allclose(batch.value, values.flatten(), atol=1e-5)
    np.testing.assert_allclose(batch.value_target, (advantages + values).flatten(), atol=1e-4)
    np.testing.assert_allclose(batch.log_prob, batch.behaviour_log_prob, atol=1e-4)
    assert batch.sequence_length == 9  # of 144 samples, up to 10
    # Cut anywhere, sequences say the same as the whole: each begins with the state it needs.
    parameters = dict(network.named_parameters())
    for length in (1, 9, 16, 144):
        outputs = network.outputs_at(parameters, batch.observation.view(144 // length, length, -1))
        torch.testing.assert_close(outputs, batch.outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_off_policy_each_network_goes_through_the_fragments_from_their_first_states(
    cell: str,
) -> None:
    acted, learns = (recurrent_network(CONTINUOUS, cell, seed=seed) for seed in (0, 1))
    trajectories = recurrent_trajectories(acted)
    rule = ImpactHyperparameters(discount=DISCOUNT, trace_lambda=LAMBDA, sequence_length=8)
    batch = off_policy_batch(
        side_by_side([fragments_of(each) for each in trajectories]),
        policy=acted,
        critic=learns,
        rule=rule,
        normalisation=RAW,
    )
    np.testing.assert_allclose(batch.log_prob, batch.behaviour_log_prob, atol=1e-4)
    # With a ratio of 1, V-trace's targets are those of generalised advantages.
    values, advantages = plain_advantages(learns, trajectories)
    np.testing.assert_allclose(batch.value, values.flatten(), atol=1e-5)
    np.testing.assert_allclose(batch.value_target, (advantages + values).flatten(), atol=1e-3)
    rows = batch.observation.view(-1, batch.sequence_length, batch.observation.shape[1])
    _, again, _ = learns.evaluated(rows)
    np.testing.assert_allclose(again.flatten(), values.flatten(), atol=1e-5)
    assert batch.sequence_length == 8


@pytest.mark.parametrize("kind", [Impact, Impala])
def test_an_off_policy_learner_goes_on_with_the_states_in_its_buffer(
    kind: type[Impact] | type[Impala],
) -> None:
    given = {"hidden_sizes": (6,), "recurrent": "gru", "recurrent_units": 5}
    sizes = {"train_batch_size": 96, "minibatch_size": 48, "sequence_length": 8}
    model = ImpactHyperparameters if kind is Impact else ImpalaHyperparameters
    rule: Any = model.model_validate({**given, **sizes})
    one, other = (kind(CONTINUOUS, rule, seed=seed, max_rounds=9) for seed in (0, 1))
    network = recurrent_network(CONTINUOUS, "gru")
    one.add(recurrent_trajectories(network))  # a batch, and half of one that waits
    one.update()
    other.load_state(*one.state())
    for each in (one, other):
        each.add(recurrent_trajectories(network, seed=1)[:1])
        stats = each.update().stats
        assert stats["num_minibatches"] == 2
        assert each.samples() is None
    assert_same_state(one, other)


def test_minibatches_are_whole_sequences_each_once_a_pass() -> None:
    network = recurrent_network(CONTINUOUS, "gru")
    batch = on_policy_batch(
        recurrent_trajectories(network),
        network,
        discount=DISCOUNT,
        gae_lambda=LAMBDA,
        longest_sequence=8,
    )
    batch = batch.replaced(value=torch.arange(144.0))  # each sample's number
    minibatches = ShuffledMinibatches(
        batch,
        num_epochs=2,
        minibatch_size=41,
        generator=torch.Generator().manual_seed(0),
        normalise=True,
    )
    seen = [*minibatches.tensors()]
    assert [len(each.action) for each in seen] == [*minibatches.sizes()]
    assert {len(each.action) for each in seen} == {32, 40}
    for each in seen:
        numbers = each.value.view(-1, 8)
        assert torch.equal(numbers, numbers[:, :1] + torch.arange(8))
        assert torch.equal(each.observation.flatten(0, 1), batch.observation[each.value.long()])
        assert torch.equal(each.action, batch.action[each.value.long()])
        torch.testing.assert_close(each.advantage.mean(), torch.zeros(()), atol=1e-5, rtol=0)
    numbers = torch.cat([each.value for each in seen])
    assert torch.equal(numbers.sort().values, torch.arange(144.0).repeat_interleave(2))
    assert not torch.equal(numbers[:144], numbers[144:])


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one() -> None:
    changes = {"recurrent": "lstm", "hidden_sizes": (6,), "recurrent_units": 5}
    changes |= {"log_std": "state_dependent", "sequence_length": 8, "num_epochs": 2}
    rule = STANDARD.model_copy(update=changes)
    whole, begun = (Ppo(CONTINUOUS, rule, seed=1) for _ in range(2))
    network = whole.network
    assert isinstance(network, RecurrentActorCritic)
    first, second = (recurrent_trajectories(network, seed=seed) for seed in (1, 2))
    whole.learn(first)
    begun.learn(first[::-1])
    resumed = Ppo(CONTINUOUS, rule, seed=9)
    resumed.load_state(*begun.state())
    assert whole.learn(second).stats == resumed.learn(second).stats
    assert_same_state(whole, resumed)
    assert whole.samples() is None  # detectors take samples one by one


def test_a_recurrent_policy_obeys_masks() -> None:
    masked = FLAT.model_copy(
        update={
            "observation": ObservationSpec(shape=(7,), dtype="float32", action_mask=True),
            "action": DiscreteActionSpec(n=3),
        }
    )
    network = recurrent_network(masked, "gru")
    policy = load_policy(network.arrays(), network.spec.metadata())
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((6, 2, 7)).astype(np.float32)
    seen[..., 4:] = np.array([[0, 1, 1], [1, 0, 0]], np.float32)
    state = policy.new_state(2)
    ours = np.stack([policy.outputs(each, state) for each in seen], 1)  # [B, T, H]
    rows = torch.zeros(2, 6, 1 + 5 + 7)
    rows[..., 6:] = torch.from_numpy(seen).transpose(0, 1)
    theirs = network.outputs_at(dict(network.named_parameters()), rows).detach()
    np.testing.assert_allclose(ours.reshape(-1, 3), theirs, rtol=1e-5, atol=1e-5)
    assert (ours[0, :, 0] < -1e8).all()
    assert (ours[1, :, 1:] < -1e8).all()
