"""The policy surrogate over fixed samples, with the leading eigenvectors of its Hessian.

The detector finds the ends of the spectrum only, by derivatives written by hand; here their vectors
are wanted and time is not short, so this is automatic differentiation and SciPy. A test holds the
two against each other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.nn import functional

from shared.trajectory.columns import Columns


class SampledSurrogate:
    """The surrogate objective of a tanh MLP with a Gaussian head, at one policy.

    Vectors over the policy's parameters are ordered as its arrays are.

    Args:
        batch: The samples, with their advantages.
        arrays: The policy's weights and biases in turn, layer by layer.
    """

    def __init__(self, batch: Columns[Tensor], arrays: Sequence[NDArray[np.float32]]) -> None:
        self.batch = batch
        self._shapes = [array.shape for array in arrays]
        flat = [torch.from_numpy(array).flatten() for array in arrays]
        self._point = torch.cat(flat).requires_grad_()
        (self._gradient,) = torch.autograd.grad(self.value(), self._point, create_graph=True)

    def value(self) -> Tensor:
        """Return the mean of A r, whose ratio r has value 1 and a gradient # []."""
        action, advantage = self.batch.action, self.batch.advantage
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        layers = torch.split(self._point, sizes)
        hidden = self.batch.observation
        for place in range(0, len(layers), 2):
            weight = layers[place].view(self._shapes[place])
            hidden = functional.linear(hidden, weight, layers[place + 1])
            hidden = torch.tanh(hidden) if place + 2 < len(layers) else hidden
        mean, log_std = hidden.chunk(2, dim=1)
        # Without terms that do not depend on the weights: the ratio is the same.
        log_prob = (-0.5 * ((action - mean) / log_std.exp()).square() - log_std).sum(1)
        return (advantage * torch.exp(log_prob - log_prob.detach())).mean()

    def leading_eigenvectors(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the two eigenvalues largest in size # [2] and their unit vectors # [P, 2]."""
        size = self._point.numel()
        operator = LinearOperator((size, size), matvec=self._product, dtype=np.float32)
        start = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        values, vectors = eigsh(operator, k=2, which="LM", v0=start, tol=1e-2)
        order = np.argsort(-np.abs(values))
        return values[order], vectors[:, order]

    def _product(self, vector: NDArray[Any]) -> NDArray[Any]:
        direction = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float32)).flatten()
        (product,) = torch.autograd.grad(
            self._gradient, self._point, grad_outputs=direction, retain_graph=True
        )
        return product.numpy()
