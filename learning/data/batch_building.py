"""From fragments to a batch: quantities that the learner needs and actors do not know.

Values, advantages and distribution parameters are computed with the networks of the learner. The
actors' own log-probabilities come from NumPy and differ in the last bits; recomputed in torch the
probability ratio is exactly 1 before the first step.

Legend: T steps; B environments of all fragments together; N = T B samples.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from learning.data.fragments import in_actor_order
from learning.data.normalisation import Normalisation
from learning.data.sequences import Evaluated, Finals, remembered
from learning.networks.actor_critic import ActorCritic
from learning.networks.recurrent_network import RecurrentActorCritic
from learning.returns.gae import generalised_advantages, normalised
from learning.returns.vtrace import Returns, vtrace
from shared.hyperparameters.common import OffPolicyHyperparameters
from shared.policy.recurrent import sequence_length
from shared.trajectory.columns import Columns, Experience, final_rows
from shared.trajectory.trajectory import Trajectory

Estimator = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Returns]
"""Targets and advantages from log(pi / mu), rewards, values, next values, `terminated` and
`truncated` # [T, B] each."""

RAW = Normalisation()
"""Leaves observations and rewards as they are."""


def build_batch(
    parts: Sequence[Experience],
    estimator: Estimator,
    *,
    policy: ActorCritic,
    critic: ActorCritic,
    normalisation: Normalisation,
) -> Columns[Tensor]:
    """Return the samples of some fragments, equally long, in their order.

    `log_prob` and `outputs` are the policy's, `value` is the critic's. Each part counts as a
    trajectory.

    Args:
        parts: The data.
        estimator: Computes value targets, advantages and weights from them.
        policy: Only the policy of this network is used.
        critic: Only the values of this network are used.
        normalisation: Of observations, as the policy saw them, and of rewards.
    """
    device = critic.flat.device

    def columns(name: str) -> Tensor:
        rows = np.concatenate([part.arrays[name] for part in parts], axis=1)
        return torch.from_numpy(rows).to(device).transpose(0, 1)  # [B, T or T + 1, ...]

    action = columns("action").flatten(0, 1)
    behaviour = columns("log_prob")
    with torch.no_grad():
        samples, outputs, value, next_value = _evaluated(
            policy,
            critic,
            normalisation.seen(network_input(columns("observation"), keep=2)),
            parts,
            _finals(parts, normalisation, device),
        )
        log_prob = policy.distribution.log_prob(outputs, action)
        returns = estimator(
            (log_prob.view(behaviour.shape) - behaviour).t(),
            normalisation.scaled(columns("reward")).t().contiguous(),
            value.t().contiguous(),
            next_value.t().contiguous(),
            columns("terminated").t(),
            columns("truncated").t(),
        )
    batch = Columns(
        observation=samples,
        action=action,
        advantage=returns.advantage.t().flatten(),
        value_target=returns.target.t().flatten(),
        value=value.flatten(),
        log_prob=log_prob,
        outputs=outputs,
        behaviour_log_prob=behaviour.flatten(),
    ).of_trajectories(len(parts))
    if returns.rho is None:
        return batch
    return batch.replaced(weight=returns.rho.t().flatten())


def on_policy_batch(
    trajectories: Sequence[Trajectory],
    network: ActorCritic,
    *,
    discount: float,
    gae_lambda: float,
    normalisation: Normalisation = RAW,
    longest_sequence: int = 1,
) -> Columns[Tensor]:
    """Return the batch of a round, with normalised generalised advantages.

    Args:
        trajectories: In any order; actor indices are distinct and all have the same T.
        network: The policy that made all of them, and its value function.
        discount: Gamma.
        gae_lambda: Lambda.
        normalisation: Of observations, as the policy saw them, and of rewards.
        longest_sequence: Most steps that a recurrent network's gradients reach back.

    Raises:
        ValueError: There is no trajectory, an actor index occurs twice, or lengths differ.
    """

    def estimator(_log_ratio: Tensor, reward: Tensor, value: Tensor, *others: Tensor) -> Returns:
        advantage = generalised_advantages(
            reward, value, *others, discount=discount, gae_lambda=gae_lambda
        )
        return Returns(target=advantage + value, advantage=advantage)

    batch = build_batch(
        in_actor_order(trajectories),
        estimator,
        policy=network,
        critic=network,
        normalisation=normalisation,
    )
    batch = batch.replaced(advantage=normalised(batch.advantage))
    return _in_sequences(batch, network, longest_sequence)


def off_policy_batch(
    fragments: Experience,
    *,
    policy: ActorCritic,
    critic: ActorCritic,
    rule: OffPolicyHyperparameters,
    normalisation: Normalisation,
) -> Columns[Tensor]:
    """Return the samples of some fragments, as seen by a policy that did not act there.

    Advantages (not normalised), value targets and weights (rho) are V-trace's, of `policy` versus
    the acting policy. Every environment's column is its own trajectory.
    """
    estimator = partial(
        vtrace,
        discount=rule.discount,
        trace_lambda=rule.trace_lambda,
        rho_clip=rule.rho_clip,
        c_clip=rule.c_clip,
    )
    batch = build_batch(
        [fragments], estimator, policy=policy, critic=critic, normalisation=normalisation
    )
    return _in_sequences(batch.of_trajectories(fragments.num_envs), critic, rule.sequence_length)


def _in_sequences(batch: Columns[Tensor], network: ActorCritic, longest: int) -> Columns[Tensor]:
    """Return a batch in sequences for a recurrent network."""
    if not isinstance(network, RecurrentActorCritic):
        return batch
    return batch.in_sequences(sequence_length(batch.num_samples, longest))


def _finals(
    parts: Sequence[Experience], normalisation: Normalisation, device: torch.device
) -> Finals:
    """Return the last observations of truncated episodes, as the network sees them."""
    t, b = (torch.from_numpy(index).to(device) for index in final_rows(parts))
    final = torch.from_numpy(np.concatenate([part.final_observation for part in parts]))
    return Finals(t, b, normalisation.seen(network_input(final.to(device), keep=1)))


def _evaluated(
    policy: ActorCritic,
    critic: ActorCritic,
    observation: Tensor,
    parts: Sequence[Experience],
    finals: Finals,
) -> Evaluated:
    """Return the networks' results for the parts' observations # [B, T + 1, ...]."""
    if isinstance(policy, RecurrentActorCritic) and isinstance(critic, RecurrentActorCritic):
        first_state = np.concatenate([part.recurrent_state for part in parts])
        ended = np.concatenate([part.terminated | part.truncated for part in parts], axis=1)
        unrolled = partial(
            remembered,
            observation=observation,
            first_state=torch.from_numpy(first_state).to(observation.device),
            ended=torch.from_numpy(ended).to(observation.device).t(),
            finals=finals,
        )
        seen = unrolled(critic)
        return seen if policy is critic else seen._replace(outputs=unrolled(policy).outputs)
    samples = observation[:, :-1].flatten(0, 1)
    outputs = policy.policy_outputs(samples)
    value = critic.values(observation.flatten(0, 1)).view(observation.shape[:2])
    next_value = value[:, 1:].clone()
    if len(finals.t):
        next_value[finals.b, finals.t] = critic.values(finals.seen)
    return Evaluated(samples, outputs, value[:, :-1], next_value)


def network_input(observation: Tensor, *, keep: int) -> Tensor:
    """Return observations as networks take them, with `keep` leading dimensions as they are.

    Images # [..., C, H, W] stay uint8, anything else becomes # [..., O] float32.
    """
    if observation.dtype == torch.uint8 and observation.ndim == keep + 3:
        return observation.contiguous()
    return observation.flatten(start_dim=keep).float().contiguous()
