"""A round's trajectories as the flat tensors an update reads.

Everything the learner needs that the actors do not know is computed here, with the policy the
trajectories were made by: values, advantages, and the old distribution's parameters. The actors'
own log-probabilities come from NumPy and differ in the last bits; recomputed in torch the
probability ratio is exactly 1 before the first step.

Legend: T steps; B environments of all actors together; N = T B samples, one environment after the
other, each in time order; O numbers per observation; D distribution parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.data.observation_normaliser import ObservationNormaliser
from learning.data.reward_scaler import RewardScaler
from learning.networks.actor_critic import ActorCritic
from learning.returns.gae import generalised_advantages, normalised
from shared.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """One round's samples, in an order that does not depend on when trajectories arrived."""

    observation: Tensor  # [N, O] float32 as the policy saw it, or images [N, C, H, W] uint8
    action: Tensor  # [N, A] float32 or [N] int64
    advantage: Tensor  # [N] float32, normalised over the batch
    value_target: Tensor  # [N] float32, advantage before normalising + value
    value: Tensor  # [N] float32, V(s) before the update
    log_prob: Tensor  # [N] float32, of `action` under the policy before the update
    outputs: Tensor  # [N, D] float32, that policy's distribution parameters
    behaviour_log_prob: Tensor  # [N] float32, as the actors computed it
    num_trajectories: int = 1
    """Actors, or off-policy their environments; each has an equal share of the samples, in one
    piece."""
    weight: Tensor | None = None
    """What advantages are multiplied with after they are normalised # [N] float32; None: 1."""

    @property
    def num_samples(self) -> int:
        """N."""
        return self.observation.shape[0]

    def weighted(self) -> "TrainingBatch":
        """Return the batch with the weights in the advantages."""
        if self.weight is None:
            return self
        return replace(self, advantage=self.advantage * self.weight, weight=None)


def joined(batches: Sequence[TrainingBatch]) -> TrainingBatch:
    """Return the samples of some batches, whose trajectories are equally long, in their order.

    Weights are in the advantages then.
    """
    if len(batches) == 1:
        return batches[0].weighted()
    given = [batch.weighted() for batch in batches]
    names = {field.name for field in fields(TrainingBatch)} - {"num_trajectories", "weight"}
    columns = {name: torch.cat([getattr(batch, name) for batch in given]) for name in names}
    return TrainingBatch(**columns, num_trajectories=sum(b.num_trajectories for b in batches))


def build_batch(
    trajectories: Sequence[Trajectory],
    network: ActorCritic,
    *,
    discount: float,
    gae_lambda: float,
    observations: ObservationNormaliser | None = None,
    rewards: RewardScaler | None = None,
) -> TrainingBatch:
    """Return the batch of a round.

    Args:
        trajectories: In any order; actor indices are distinct and all have the same T.
        network: The policy all of them were made by, and its value function.
        discount: Gamma.
        gae_lambda: Lambda.
        observations: What the policy saw of observations; None if they were left as they are.
        rewards: The scale of rewards; None leaves them as they are.

    Raises:
        ValueError: There is no trajectory, an actor index occurs twice, or lengths differ.
    """
    ordered = in_actor_order(trajectories)
    device = network.flat.device

    def gathered(rows: list[NDArray[np.generic]]) -> Tensor:
        return torch.from_numpy(np.concatenate(rows, axis=1)).to(device)  # [T or T + 1, B, ...]

    # [B, T + 1, O]: environment-major from here on, as TrainingBatch is
    observation = network_input(gathered([t.observation for t in ordered]).transpose(0, 1), keep=2)
    observation = observations.apply(observation) if observations else observation
    action = gathered([t.action for t in ordered]).transpose(0, 1).flatten(0, 1)
    reward = gathered([t.reward for t in ordered])
    with torch.no_grad():
        value, next_value = _values(network, observation, ordered, observations)
        advantage = generalised_advantages(
            rewards.apply(reward) if rewards else reward,
            value.t().contiguous(),
            next_value.t().contiguous(),
            gathered([t.terminated for t in ordered]),
            gathered([t.truncated for t in ordered]),
            discount=discount,
            gae_lambda=gae_lambda,
        ).t()
        flat_observation = observation[:, :-1].flatten(0, 1)
        outputs = network.policy_outputs(flat_observation)
        log_prob = network.distribution.log_prob(outputs, action)
    return TrainingBatch(
        observation=flat_observation,
        action=action,
        advantage=normalised(advantage.flatten()),
        value_target=(advantage + value).flatten(),
        value=value.flatten(),
        log_prob=log_prob,
        outputs=outputs,
        behaviour_log_prob=gathered([t.log_prob for t in ordered]).t().flatten(),
        num_trajectories=len(ordered),
    )


def _values(
    network: ActorCritic,
    observation: Tensor,
    ordered: Sequence[Trajectory],
    observations: ObservationNormaliser | None,
) -> tuple[Tensor, Tensor]:
    """Return V of each step's state and of the state it led to, both # [B, T].

    Args:
        network: Has the value function.
        observation: As the policy saw it. # [B, T + 1, O]
        ordered: For the final observations of truncated episodes, which `observation` lacks.
        observations: What the policy saw of those.
    """
    value = network.values(observation.flatten(0, 1)).view(observation.shape[:2])
    next_value = value[:, 1:].clone()
    rows = np.concatenate(_final_rows(ordered), axis=1)
    if rows.size:
        final = torch.from_numpy(np.concatenate([t.final_observation for t in ordered]))
        final = network_input(final.to(value.device), keep=1)
        final_value = network.values(observations.apply(final) if observations else final)
        next_value[tuple(torch.from_numpy(rows).to(value.device))] = final_value
    return value[:, :-1], next_value


def network_input(observation: Tensor, *, keep: int) -> Tensor:
    """Return observations as networks take them, with `keep` leading dimensions as they are.

    Images # [..., C, H, W] stay uint8, anything else becomes # [..., O] float32.
    """
    if observation.dtype == torch.uint8 and observation.ndim == keep + 3:
        return observation.contiguous()
    return observation.flatten(start_dim=keep).float().contiguous()


def _final_rows(ordered: Sequence[Trajectory]) -> list[NDArray[np.int64]]:
    """Return where each trajectory's final observations belong, as # [2, F] rows (b, t).

    Final observations come in (t, b) order of the steps that truncated without terminating; b is
    made to count over the environments of all actors.
    """
    rows, first_env = [], 0
    for trajectory in ordered:
        t, b = np.nonzero(trajectory.truncated & ~trajectory.terminated)
        if len(t) != len(trajectory.final_observation):
            raise ValueError(
                f"actor {trajectory.actor_index}: {len(trajectory.final_observation)} final "
                f"observations for {len(t)} truncated steps"
            )
        rows.append(np.stack((b + first_env, t)))
        first_env += trajectory.reward.shape[1]
    return rows


def in_actor_order(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return a round's trajectories in an order that does not depend on when they arrived.

    Raises:
        ValueError: There is no trajectory, an actor index occurs twice, or lengths differ.
    """
    if not trajectories:
        raise ValueError("an update needs at least one trajectory, got none")
    ordered = sorted(trajectories, key=lambda trajectory: trajectory.actor_index)
    indices = [trajectory.actor_index for trajectory in ordered]
    if len(set(indices)) != len(indices):
        raise ValueError(f"actor indices must be distinct, got {indices}")
    lengths = {trajectory.reward.shape[0] for trajectory in ordered}
    if len(lengths) != 1:
        raise ValueError(f"all trajectories of a round must have one length, got {sorted(lengths)}")
    return ordered
