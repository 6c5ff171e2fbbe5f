"""Fragments as a recurrent network sees them: rows with states.

One pass over whole fragments, from the states in which they began, gives the state before each
step. On-policy the weights are those that acted. Sequences of any length can then begin at any
step. See `learning.networks.recurrent_network` for the rows.

Legend: T steps; B environments; F truncated episodes; S numbers of a state; O numbers of an
observation; R = 1 + S + O; D distribution parameters.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from learning.networks.recurrent_network import RecurrentActorCritic


class Evaluated(NamedTuple):
    """Fragments as the present policy and value function see them."""

    rows: Tensor  # [B T, ...], as the network takes samples
    outputs: Tensor  # [B T, D]
    value: Tensor  # [B, T], V of each step's state
    next_value: Tensor  # [B, T], V of the state it led to


class Finals(NamedTuple):
    """The last observations of truncated episodes, and the steps that led to them."""

    t: Tensor  # [F] int64
    b: Tensor  # [F] int64
    seen: Tensor  # [F, ...], as the network takes observations


def remembered(
    network: RecurrentActorCritic,
    observation: Tensor,
    *,
    first_state: Tensor,
    ended: Tensor,
    finals: Finals,
) -> Evaluated:
    """Return the rows of fragments, and the network's results for them.

    Args:
        network: Runs through them from the acting policy's states.
        observation: As the network sees them # [B, T + 1, O]
        first_state: Before the first step # [B, S]
        ended: Whether an episode ended with step t, however # [B, T] bool
        finals: Last observations of truncated episodes: their values continue from the episode's
            state.
    """
    fresh = torch.ones_like(observation[..., :1])  # [B, T + 1, 1]
    fresh[:, 1:, 0] = ended.to(fresh.dtype)
    own = torch.zeros(*observation.shape[:2], first_state.shape[1], device=observation.device)
    own[:, 0] = first_state
    outputs, values, left = network.evaluated(torch.cat((fresh, own, observation), 2))
    before = torch.where(fresh[:, 1:] != 0, own[:, 1:], left[:, :-1])
    own = torch.cat((own[:, :1], before), 1)
    next_value = values[:, 1:].clone()
    if len(finals.t):
        of_episode = left[finals.b, finals.t]
        last = torch.cat((torch.ones_like(of_episode[:, :1]), of_episode, finals.seen), 1)
        next_value[finals.b, finals.t] = network.evaluated(last.unsqueeze(1))[1].squeeze(1)
    rows = torch.cat((fresh, own, observation), 2)[:, :-1]
    return Evaluated(rows.flatten(0, 1), outputs[:, :-1].flatten(0, 1), values[:, :-1], next_value)
