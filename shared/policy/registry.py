"""Networks and distributions in addition to Nitro's own, by the names used in jobs and policies."""

from collections.abc import Callable

from shared.policy.blocks import Block
from shared.policy.formulas import FormulaHead

Network = Callable[[tuple[int, ...], int], tuple[Block, ...]]
"""Takes an observation shape and a number of outputs; returns blocks, a dense layer last."""

NETWORKS: dict[str, Network] = {}
"""Further values of `hyperparameters.network`. The value function has the same blocks, with one
output."""
HEADS: dict[str, FormulaHead] = {}
"""Distributions of continuous actions. A model of hyper-parameters names one as its
`distribution`."""
