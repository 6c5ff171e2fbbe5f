"""Action masking: forbidden actions get such low logits that they are never chosen.

A mask is the end of an observation: one number per choice, 1 if allowed and 0 if forbidden. Logits
are lowered before the distribution is formed, so log-probabilities, entropy and KL cover the
allowed actions only (Huang and Ontañón, "A closer look at invalid action masking in policy gradient
algorithms", FLAIRS 2022).

Legend: `N` rows, `F` observation size, `H` network outputs.
"""

from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from shared.policy.numpy_network import Float32, Forward

FORBIDDEN = 1e9
"""Subtracted from the logit of a forbidden action: its probability is then 0 in float32, and no
product with the logit is infinite."""

Rows = TypeVar("Rows", bound=Any)
"""NumPy arrays or torch tensors."""


def with_mask(logits: Rows, observation: Rows) -> Rows:
    """Return logits [N, H], lowered where the mask at the end of observations [N, F] is 0."""
    lowered: Rows = logits - (observation[:, -logits.shape[1] :] == 0) * FORBIDDEN
    return lowered


class Network(Protocol):
    """The policy's network."""

    @property
    def output_size(self) -> int:
        """Number of outputs, H."""
        ...

    def forward_pass(self, num_rows: int, state: Float32 | None = None) -> Forward:
        """Return a function that computes outputs [N, H] for inputs [N, F].

        Each call advances a recurrent network's state [N, S] by one step, in place.
        """
        ...


class MaskedNetwork:
    """A network whose logits are lowered by the mask in its observations."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.output_size = network.output_size

    def forward_pass(self, num_rows: int, state: Float32 | None = None) -> Forward:
        """Return a function that computes outputs [N, H] for `num_rows` inputs [N, F]."""
        forward_inside = self._network.forward_pass(num_rows, state)

        def forward(inputs: NDArray[Any], out: Float32) -> Float32:
            forward_inside(inputs, out)
            out[...] = with_mask(out, inputs)
            return out

        return forward
