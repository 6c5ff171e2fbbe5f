"""An off-policy batch against a naive per-sample reconstruction, and against the on-policy one."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.batch_building import off_policy_batch, on_policy_batch
from learning.data.fragments import fragments_of
from learning.data.normalisation import Normalisation
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import STANDARD, ImpactHyperparameters
from shared.trajectory.columns import Columns, Experience, side_by_side
from shared.trajectory.trajectory import Trajectory
from tests.learning.returns.test_vtrace import Case, double_sum
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

RAW = ImpactHyperparameters(
    hidden_sizes=(8, 8), discount=0.9, trace_lambda=0.8, rho_clip=1.5, c_clip=0.7
)
SCALED = STANDARD.model_copy(
    update={"hidden_sizes": (8, 8), "discount": 0.9, "rho_clip": 1.5, "c_clip": 0.7}
)


def networks(environment: EnvironmentSpec) -> tuple[ActorCritic, ActorCritic, ActorCritic]:
    """Three networks with policies that differ in every state."""
    actor, policy, critic = (build_network(environment, RAW, seed=seed) for seed in range(3))
    for network in (actor, policy, critic):
        for name, view in network.views_of(network.flat).items():
            if name.endswith("2.weight"):  # the last layers start nearly flat
                view.mul_(20.0)
    return actor, policy, critic


def trajectories(environment: EnvironmentSpec, actor: ActorCritic) -> list[Trajectory]:
    return [make_trajectory(environment, actor, actor_index=i) for i in range(3)]


def batch_of(
    fragments: Experience,
    policy: ActorCritic,
    critic: ActorCritic,
    *,
    rule: ImpactHyperparameters = RAW,
    normalisation: Normalisation | None = None,
) -> Columns[Tensor]:
    if normalisation is None:
        normalisation = Normalisation(observations=None, rewards=None)
    return off_policy_batch(
        fragments, policy=policy, critic=critic, rule=rule, normalisation=normalisation
    )


def naive_case(trajectory: Trajectory, policy: ActorCritic, critic: ActorCritic) -> Case:
    """One trajectory's numbers, sample by sample."""
    steps, envs = trajectory.reward.shape

    def value(observation: np.ndarray) -> float:
        return critic.values(torch.from_numpy(observation.reshape(1, -1))).item()

    v, next_v, log_ratio = (np.zeros((steps, envs)) for _ in range(3))
    final = iter(trajectory.final_observation)
    for t in range(steps):
        for b in range(envs):
            observation = trajectory.observation[t, b].reshape(1, -1)
            outputs = policy.policy_outputs(torch.from_numpy(observation))
            action = torch.from_numpy(np.array(trajectory.action[t, b])[None])
            log_prob = policy.distribution.log_prob(outputs, action).item()
            log_ratio[t, b] = log_prob - trajectory.log_prob[t, b]
            v[t, b] = value(trajectory.observation[t, b])
            cut = trajectory.truncated[t, b] and not trajectory.terminated[t, b]
            next_v[t, b] = value(next(final) if cut else trajectory.observation[t + 1, b])
    return Case(
        log_ratio,
        trajectory.reward.astype(np.float64),
        v,
        next_v,
        trajectory.terminated,
        trajectory.truncated,
    )


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE], ids=lambda e: e.env_id)
def test_samples_stand_in_order_with_the_double_sum_as_target(environment: EnvironmentSpec) -> None:
    actor, policy, critic = networks(environment)
    made = trajectories(environment, actor)
    assert sum(len(t.final_observation) for t in made) > 3
    batch = batch_of(side_by_side([fragments_of(t) for t in made]), policy, critic)
    n = 0
    for trajectory in made:
        case = naive_case(trajectory, policy, critic)
        target = double_sum(case, discount=0.9, lam=0.8, rho_clip=1.5, c_clip=0.7)
        steps, envs = case.reward.shape
        block = slice(n, n + steps * envs)
        for ours, expected in (
            (batch.value_target, target),
            (batch.value, case.value),
            (batch.behaviour_log_prob, trajectory.log_prob),
        ):
            in_time_order = ours[block].view(envs, steps).t().numpy()
            np.testing.assert_allclose(in_time_order, expected, rtol=1e-4, atol=1e-4)
        ratio = (batch.log_prob - batch.behaviour_log_prob)[block].view(envs, steps).t()
        np.testing.assert_allclose(ratio.numpy(), case.log_ratio, atol=1e-4)
        assert batch.weight is not None
        rho = batch.weight[block].view(envs, steps).t()
        expected_rho = np.minimum(np.exp(case.log_ratio), 1.5)
        np.testing.assert_allclose(rho.numpy(), expected_rho, rtol=1e-3)
        actions = batch.action[block].view(envs, steps, *batch.action.shape[1:]).transpose(0, 1)
        np.testing.assert_array_equal(actions.numpy(), trajectory.action)
        observations = batch.observation[block].view(envs, steps, -1).transpose(0, 1)
        flat = trajectory.observation[:-1].reshape(steps, envs, -1)
        np.testing.assert_array_equal(observations.numpy(), flat)
        n += steps * envs
    assert n == batch.num_samples
    np.testing.assert_allclose(
        batch.outputs.numpy(), policy.policy_outputs(batch.observation).numpy(), rtol=1e-6
    )


def test_on_its_own_data_it_is_the_on_policy_batch_but_for_normalising() -> None:
    actor, _, _ = networks(CONTINUOUS)
    made = trajectories(CONTINUOUS, actor)
    rule = RAW.model_copy(update={"rho_clip": 1.0, "c_clip": 1.0})
    batch = batch_of(side_by_side([fragments_of(t) for t in made]), actor, actor, rule=rule)
    on_policy = on_policy_batch(made, actor, discount=0.9, gae_lambda=0.8)
    for name in ("observation", "action", "value", "log_prob", "outputs", "behaviour_log_prob"):
        torch.testing.assert_close(getattr(batch, name), getattr(on_policy, name))
    # Rounding makes ratios of about 1 +- 1e-6.
    torch.testing.assert_close(batch.value_target, on_policy.value_target, rtol=1e-4, atol=1e-4)
    centred = batch.advantage - batch.advantage.mean()
    torch.testing.assert_close(
        centred / centred.square().mean().sqrt(), on_policy.advantage, rtol=1e-4, atol=1e-4
    )


def test_networks_see_normalised_observations_and_scaled_rewards() -> None:
    actor, policy, critic = networks(CONTINUOUS)
    made = trajectories(CONTINUOUS, actor)
    normalisation = Normalisation.initial(CONTINUOUS, SCALED).after(made)
    observations, rewards = normalisation.observations, normalisation.rewards
    assert observations is not None
    assert rewards is not None

    def seen(array: np.ndarray) -> np.ndarray:
        return observations.apply(torch.from_numpy(np.array(array))).numpy()

    by_hand = [
        t.replaced(
            observation=seen(t.observation),
            final_observation=seen(t.final_observation),
            reward=rewards.apply(torch.from_numpy(np.array(t.reward))).numpy(),
        )
        for t in made
    ]
    ours = batch_of(
        side_by_side([fragments_of(t) for t in made]),
        policy,
        critic,
        rule=SCALED,
        normalisation=normalisation,
    )
    expected = batch_of(
        side_by_side([fragments_of(t) for t in by_hand]), policy, critic, rule=SCALED
    )
    for name in ("observation", "value_target", "advantage", "value", "log_prob"):
        torch.testing.assert_close(getattr(ours, name), getattr(expected, name))
