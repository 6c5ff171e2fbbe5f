"""Environments and made-up trajectories for the learner's tests."""

import numpy as np
import torch

from learning.networks.actor_critic import ActorCritic
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.trajectory.trajectory import Trajectory

CONTINUOUS = EnvironmentSpec(
    env_id="Hopper-v5",
    observation=ObservationSpec(shape=(5,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0, -1.0), high=(1.0, 1.0)),
    max_episode_steps=1000,
    versions={},
)
DISCRETE = EnvironmentSpec(
    env_id="CartPole-v1",
    observation=ObservationSpec(shape=(2, 2), dtype="float32"),
    action=DiscreteActionSpec(n=3),
    max_episode_steps=500,
    versions={},
)


def make_trajectory(
    environment: EnvironmentSpec,
    network: ActorCritic,
    *,
    actor_index: int,
    seed: int = 0,
    num_steps: int = 24,
    num_envs: int = 2,
) -> Trajectory:
    """A fragment with random observations and ends, and actions sampled from `network`."""
    rng = np.random.default_rng([seed, actor_index])
    shape = environment.observation.shape
    observation = rng.normal(size=(num_steps + 1, num_envs, *shape)).astype(np.float32)
    flat = torch.from_numpy(observation[:-1].reshape(num_steps * num_envs, -1))
    with torch.no_grad():
        outputs = network.policy_outputs(flat)
        action = _sampled(outputs, environment, rng)
        log_prob = network.distribution.log_prob(outputs, action).numpy()
    terminated = rng.random((num_steps, num_envs)) < 0.1
    truncated = rng.random((num_steps, num_envs)) < 0.1
    num_cut, num_ended = (truncated & ~terminated).sum(), (truncated | terminated).sum()
    score = action.numpy().reshape(num_steps * num_envs, -1).sum(1)
    reward = (1.0 + score).reshape(num_steps, num_envs)
    return Trajectory(
        job_id="job",
        round=0,
        actor_index=actor_index,
        policy_version=0,
        observation=observation,
        final_observation=rng.normal(size=(num_cut, *shape)).astype(np.float32),
        action=action.numpy().reshape(num_steps, num_envs, *action.shape[1:]),
        reward=reward.astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        log_prob=log_prob.reshape(num_steps, num_envs),
        episode_returns=np.ones(num_ended, np.float32),
        episode_lengths=np.ones(num_ended, np.int32),
    )


def _sampled(
    outputs: torch.Tensor, environment: EnvironmentSpec, rng: np.random.Generator
) -> torch.Tensor:
    if isinstance(environment.action, DiscreteActionSpec):
        noise = torch.from_numpy(rng.gumbel(size=tuple(outputs.shape)))
        return (outputs + noise).argmax(1)
    mean, log_std = outputs.chunk(2, dim=1)
    noise = torch.from_numpy(rng.normal(size=tuple(mean.shape)).astype(np.float32))
    return mean + log_std.exp() * noise
