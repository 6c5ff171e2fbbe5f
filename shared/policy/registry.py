"""Networks and distributions beside Nitro's own, by the names that jobs and policies use."""

from collections.abc import Callable

from shared.policy.blocks import Block
from shared.policy.formulas import FormulaHead

Network = Callable[[tuple[int, ...], int], tuple[Block, ...]]
"""Returns the blocks from observations of a shape to so many outputs, a dense layer last."""

NETWORKS: dict[str, Network] = {}
"""What `hyperparameters.network` may name. The value function has the same blocks, with one
output."""
HEADS: dict[str, FormulaHead] = {}
"""Distributions of continuous actions. A model of hyper-parameters names one as its
`distribution`."""
