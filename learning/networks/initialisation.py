"""First weights of a network.

Every form draws from the generator it is given, so that torch's global random state is left alone.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Initialisation = Literal["normc", "orthogonal"]
Place = Literal["hidden", "policy_output", "value_output"]
"""Which layer of a network a weight belongs to."""

NORMC_NORMS: dict[Place, float] = {"hidden": 1.0, "policy_output": 0.01, "value_output": 0.01}
"""Lengths of a unit's incoming weights. RLlib `normc_initializer`; the outputs are small, so that
the first policy is nearly the same in every state."""
ORTHOGONAL_GAINS: dict[Place, float] = {
    "hidden": math.sqrt(2.0),
    "policy_output": 0.01,
    "value_output": 1.0,
}
"""Gains of orthogonal weights. Huang et al., "The 37 implementation details of proximal policy
optimization", ICLR blog track 2022, detail 2."""


def initialise(
    weight: Tensor, form: Initialisation, place: Place, *, generator: torch.Generator
) -> None:
    """Overwrite a weight # [out, ...], on the CPU, with a first value."""
    if form == "normc":
        weight.copy_(normc(weight, norm=NORMC_NORMS[place], generator=generator))
    else:
        nn.init.orthogonal_(weight, ORTHOGONAL_GAINS[place], generator=generator)


def normc(like: Tensor, *, norm: float, generator: torch.Generator) -> Tensor:
    """Return weights # [out, ...] of Gaussian direction, each unit's scaled to length `norm`."""
    weight = torch.randn(like.shape, generator=generator)
    lengths = weight.flatten(1).square().sum(1).sqrt()
    return weight * (norm / lengths).view(-1, *[1] * (weight.ndim - 1))
