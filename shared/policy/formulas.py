"""Blocks and distributions with one formula for both NumPy and torch.

The blocks of Nitro's own networks are implemented in each backend, for speed. An additional block
or distribution is one class in its own file, which imports neither NumPy nor torch, and an entry
in `shared.policy.registry`.

Legend: N samples; A numbers of an action; n values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class FormulaBlock(ABC):
    """A part of a network; subclasses are frozen dataclasses.

    It follows a dense layer, has a weight and a bias, and preserves the number of values. One-axis
    weights and all biases are initialised to 0.
    """

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the weight; the bias is as long as its first axis."""

    @abstractmethod
    def values(self, xp: Any, weight: Any, bias: Any, x: Any) -> Any:
        """Return the block's output for `x` # [N, n], as a new array.

        Args:
            xp: `numpy` or `torch`, whose functions take these arrays.
            weight: # `weight_shape`
            bias: # `weight_shape[:1]`
            x: Output of the previous block.
        """

    @abstractmethod
    def nodes(self, add: Callable[..., str], weight: str, bias: str, x: str) -> str:
        """Add the same formula to an ONNX graph, and return the name of the result.

        Args:
            add: Adds an operator, given its name, its inputs' names and its attributes; returns
                the name of its output.
            weight: Name of the weight.
            bias: Name of the bias.
            x: Name of the previous block's output.
        """


class FormulaHead(ABC):
    """A distribution of continuous actions; outputs are `mean | spread` # [N, 2A].

    The most likely action is the mean.
    """

    @abstractmethod
    def noise(self, rng: Any, shape: tuple[int, ...]) -> Any:
        """Draw float32 noise of this shape from a NumPy generator, for `sample`."""

    @abstractmethod
    def sample(self, xp: Any, outputs: Any, noise: Any) -> Any:
        """Return actions # [N, A] for outputs and noise # [N, A]; `xp` is `numpy` or `torch`."""

    @abstractmethod
    def log_prob(self, xp: Any, outputs: Any, action: Any) -> Any:
        """Return the log-densities of actions # [N]."""

    @abstractmethod
    def entropy(self, xp: Any, outputs: Any) -> Any:
        """Return the differential entropies in nats # [N]."""

    @abstractmethod
    def kl(self, xp: Any, old: Any, new: Any) -> Any:
        """Return KL(old || new) in nats # [N]."""
