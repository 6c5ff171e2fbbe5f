"""Fragments as the flat tensors an off-policy update reads.

As `learning.data.batch`, but the trajectories were made by older policies: advantages and value
targets are V-trace's, of a policy to be named versus the one that acted.

Legend: T steps; B environments; N = T B samples, one environment after the other, each in time
order.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.data.batch import TrainingBatch, network_input
from learning.data.fragments import Fragments
from learning.data.normalisation import Normalisation
from learning.networks.actor_critic import ActorCritic
from learning.returns.vtrace import vtrace
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters

OffPolicyHyperparameters = ImpactHyperparameters | ImpalaHyperparameters


def build_off_policy_batch(
    fragments: Fragments,
    *,
    policy: ActorCritic,
    critic: ActorCritic,
    rule: OffPolicyHyperparameters,
    normalisation: Normalisation,
) -> TrainingBatch:
    """Return the samples of some fragments, as seen by a policy that did not act there.

    In the batch, `log_prob` and `outputs` are `policy`'s; `advantage`, not normalised,
    `value_target` and `weight`, its rho, are V-trace's; `value` is what `critic` says.
    Every environment's column is a trajectory of its own.

    Args:
        fragments: The data.
        policy: The policy V-trace evaluates; of this network only the policy is read.
        critic: Of this network only the values are read.
        rule: V-trace's parameters.
        normalisation: Of observations and rewards.
    """
    device, rewards = critic.flat.device, normalisation.rewards

    def columns_first(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device).transpose(0, 1)  # [B, T or T + 1, ...]

    observation = _seen(columns_first(fragments.observation), normalisation, keep=2)
    action = columns_first(fragments.action).flatten(0, 1)
    behaviour = columns_first(fragments.log_prob)
    reward = columns_first(fragments.reward)
    with torch.no_grad():
        samples = observation[:, :-1].flatten(0, 1)
        outputs = policy.policy_outputs(samples)
        log_prob = policy.distribution.log_prob(outputs, action)
        value, next_value = _values(critic, observation, fragments, normalisation)
        traced = vtrace(
            (log_prob.view(behaviour.shape) - behaviour).t(),
            (rewards.apply(reward) if rewards else reward).t().contiguous(),
            value.t().contiguous(),
            next_value.t().contiguous(),
            columns_first(fragments.terminated).t(),
            columns_first(fragments.truncated).t(),
            discount=rule.discount,
            trace_lambda=rule.trace_lambda,
            rho_clip=rule.rho_clip,
            c_clip=rule.c_clip,
        )
    return TrainingBatch(
        observation=samples,
        action=action,
        advantage=traced.advantage.t().flatten(),
        value_target=traced.target.t().flatten(),
        value=value.flatten(),
        log_prob=log_prob,
        outputs=outputs,
        behaviour_log_prob=behaviour.flatten(),
        num_trajectories=fragments.num_envs,
        weight=traced.rho.t().flatten(),
    )


def _values(
    critic: ActorCritic, observation: Tensor, fragments: Fragments, normalisation: Normalisation
) -> tuple[Tensor, Tensor]:
    """Return V of each step's state and of the state it led to, both # [B, T].

    Args:
        critic: Has the value function.
        observation: As the network sees it. # [B, T + 1, O]
        fragments: For the final observations, which `observation` lacks.
        normalisation: Of those.
    """
    value = critic.values(observation.flatten(0, 1)).view(observation.shape[:2])
    next_value = value[:, 1:].clone()
    t, b = (torch.from_numpy(index).to(value.device) for index in fragments.final_rows)
    if len(t):
        final = torch.from_numpy(fragments.final_observation).to(value.device)
        next_value[b, t] = critic.values(_seen(final, normalisation, keep=1))
    return value[:, :-1], next_value


def _seen(observation: Tensor, normalisation: Normalisation, *, keep: int) -> Tensor:
    """Return what the network sees of observations, with `keep` leading dimensions as they are."""
    flat = network_input(observation, keep=keep)
    observations = normalisation.observations
    return observations.apply(flat) if observations else flat
