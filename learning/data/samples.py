"""The samples of one gradient step, as tensors or as NumPy arrays.

Legend: n samples; O numbers per observation; D distribution parameters.
"""

from dataclasses import dataclass, fields
from typing import Generic

from learning.data.arrays import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch(Generic[Array]):
    """Samples of one gradient step; advantages have the batch's weights in them."""

    observation: Array  # [n, O] float32 as the policy saw it, or images [n, C, H, W] uint8
    action: Array  # [n, A] float32 or [n] int64
    advantage: Array  # [n] float32
    value_target: Array  # [n] float32
    value: Array  # [n] float32, V(s) before the update
    log_prob: Array  # [n] float32, of `action`: what the ratio is taken to
    behaviour_log_prob: Array  # [n] float32, of `action`, as the actors computed it
    outputs: Array  # [n, D] float32, distribution parameters the divergence is from


SAMPLE_FIELDS = tuple(field.name for field in fields(Minibatch))
"""What a gradient step knows of a sample."""
