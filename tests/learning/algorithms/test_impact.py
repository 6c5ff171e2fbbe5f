"""IMPACT as a whole: its target policy's schedule, its KL coefficient, its step, what it learns."""

import numpy as np
import pytest
import torch

from learning.algorithms.impact import Impact
from learning.algorithms.ppo import Ppo
from learning.data.batch import weighted
from learning.data.batch_building import off_policy_batch
from learning.data.fragments import fragments_of
from learning.data.normalisation import Normalisation
from learning.losses.impact import ImpactRule, reference_log_prob
from learning.networks.building import build_network
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns, side_by_side
from tests.learning.algorithms.off_policy_rounds import IMPACT, Learner, learner, round_of
from tests.learning.algorithms.test_ppo import plain_forward
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory


def weights(made: Learner, prefix: str) -> bytes:
    arrays, _ = made.state()
    return b"".join(arrays[name].tobytes() for name in sorted(arrays) if name.startswith(prefix))


def updated(made: Learner, times: int) -> list[dict[str, float]]:
    """Learn `times` from one batch each that was never used before."""
    stats = []
    for k in range(times):
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
        stats.append(made.update().stats)
    return stats


@pytest.mark.parametrize(
    ("frequency", "every"), [(1.0, 6), (0.5, 3), (0.1, 1), (1e-6, 1), (1.26, 8)]
)
def test_the_target_follows_every_so_many_batches(frequency: float, every: int) -> None:
    """N = 2 batches, K = 3 uses."""
    made = learner(CONTINUOUS, IMPACT.model_copy(update={"target_update_frequency": frequency}))
    followed = weights(made, "target.")
    assert followed == weights(made, "network.")
    for batch in range(1, 18):
        stats = updated(made, 1)[0]
        if batch % every == 0:
            followed = weights(made, "network.")
        assert stats["target_updates"] == float(batch % every == 0)
        assert weights(made, "target.") == followed


def test_the_kl_coefficient_is_adapted_at_target_updates_only() -> None:
    tight = IMPACT.model_copy(update={"kl_target": 1e-9, "kl_coefficient_max": 2.0})
    used = [stats["kl_coefficient"] for stats in updated(learner(CONTINUOUS, tight), 10)]
    assert used == [1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 2.0, 2.0, 2.0, 2.0]
    loose = IMPACT.model_copy(update={"kl_target": 1e9})
    used = [stats["kl_coefficient"] for stats in updated(learner(CONTINUOUS, loose), 7)]
    assert used == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]


def test_every_batch_is_used_k_times_when_there_is_time() -> None:
    made = learner(CONTINUOUS, IMPACT)
    made.add(round_of(made, CONTINUOUS, 0, num_actors=4))
    fresh = []
    while made.ready:
        fresh.append(made.update().stats["fresh"])
    assert fresh == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE], ids=lambda e: e.env_id)
def test_a_step_agrees_with_a_plain_autograd_version(environment: EnvironmentSpec) -> None:
    """One step on a whole batch: nn.Linear layers, autograd and an unfused Adam, in float64."""
    hyperparameters = ImpactHyperparameters(
        hidden_sizes=(8, 8), train_batch_size=96, kl_coefficient=0.7, learning_rate=1e-2
    )
    made = Impact(environment, hyperparameters, seed=5)
    acted = build_network(environment, hyperparameters, seed=6)
    trajectories = [
        t.replaced(log_prob=t.log_prob + np.float32(0.3))
        for t in round_of(made, environment, 0, num_actors=2)
    ]
    # The target lags: the learner's network is moved after the target was copied from it.
    target = build_network(environment, hyperparameters, seed=0)
    target.flat.copy_(made.network.flat)
    made.network.flat.add_(0.1 * acted.flat)
    reference = build_network(environment, hyperparameters, seed=0)
    reference.flat.copy_(made.network.flat)
    batch = weighted(
        off_policy_batch(
            side_by_side([fragments_of(t) for t in trajectories]),
            policy=target,
            critic=reference,
            rule=hyperparameters,
            normalisation=Normalisation(observations=None, rewards=None),
        )
    )
    made.add(trajectories)
    loss_before = made.update().stats["loss"]

    reference.flatten(torch.float64)
    fields = {
        name: getattr(batch, name).double()
        for name in (
            "observation",
            "advantage",
            "value_target",
            "value",
            "outputs",
            "behaviour_log_prob",
        )
    }
    action = batch.action if batch.action.dtype == torch.int64 else batch.action.double()
    log_prob = reference_log_prob(
        batch.log_prob.double(), batch.behaviour_log_prob.double(), importance_clip=2.0
    )
    samples = Columns(action=action, log_prob=log_prob, **fields)
    reference.requires_grad_()
    adam = torch.optim.Adam(reference.parameters(), lr=1e-2)
    rule = ImpactRule(hyperparameters=hyperparameters, kl_coefficient=0.7)
    answers = plain_forward(reference, samples.observation)
    loss = rule.loss(*answers, samples, reference.distribution)
    loss.backward()  # type: ignore[no-untyped-call]
    adam.step()
    assert loss_before == pytest.approx(loss.item(), rel=1e-4)
    for name, view in made.network.views_of(made.network.flat).items():
        expected = dict(reference.named_parameters())[name].detach().float()
        torch.testing.assert_close(view, expected, rtol=1e-3, atol=1e-4)


def test_it_learns_which_action_pays_from_stale_trajectories() -> None:
    """The reward is 1 + the action's number: after a few batches the last action is taken."""
    hyperparameters = ImpactHyperparameters(
        hidden_sizes=(16,),
        train_batch_size=96,
        learning_rate=5e-3,
        minibatch_size=24,
        buffer_uses=4,
        discount=0.5,
        target_update_frequency=0.25,
    )
    made = Impact(DISCRETE, hyperparameters, seed=1)
    stale = round_of(made, DISCRETE, 0, num_actors=2)
    for k in range(1, 16):
        made.add(stale)
        stale = round_of(made, DISCRETE, k, num_actors=2)
        while made.ready:
            made.update()
        made.advance(k)
    assert np.mean([t.action.mean() for t in stale]) > 1.6  # 1 at random


def test_it_begins_with_a_policy_of_ppo_and_its_target_does_too() -> None:
    earlier = Ppo(CONTINUOUS, PpoHyperparameters(hidden_sizes=IMPACT.hidden_sizes), seed=0)
    earlier.learn([make_trajectory(CONTINUOUS, earlier.network, actor_index=0, seed=1)])
    begun = learner(CONTINUOUS, IMPACT, seed=5)
    begun.begin_from(*earlier.state(), optimiser=False)
    network = earlier.network.flat.numpy().tobytes()
    assert begun.network.flat.numpy().tobytes() == network
    assert weights(begun, "target") == weights(begun, "network")
