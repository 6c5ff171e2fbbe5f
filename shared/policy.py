"""Policies in NumPy: what an actor needs to act, from the arrays the learner exports.

Actors carry no torch: for the small networks of continuous control a forward pass in NumPy is
faster than one in torch, and the actor's image stays small.

Legend: `T` steps, `B` environments side by side, `F` observation size, `A` action size, `H` outputs
of the network's last layer.

Arrays: `policy.{i}.weight` [out, in] and `policy.{i}.bias` [out] float32 for layers i = 0..L, as
torch's `nn.Linear` names and lays them out. The last layer's outputs are, by the metadata's
`distribution` and `log_std`: `mean | log_std` (2A, `gaussian`, `state_dependent`), `mean` (A,
`gaussian`, `free`, with an array `log_std` [A] beside the layers) or logits (`categorical`, `none`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.distributions import Action, Categorical, Distribution, DistributionError, Gaussian
from shared.mlp import Mlp, MlpError
