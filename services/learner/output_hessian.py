"""The policy surrogate as a function of the policy's outputs: where its curvature enters a network.

For L = mean_i A_i pi_theta(a_i|s_i) / pi_theta0(a_i|s_i) at theta0, with o_i the outputs for sample
i, g_i and H_i gradient and Hessian of log pi(a_i|s_i),

    gradient of L with respect to o_i  =  A_i / N g_i
    Hessian of L with respect to o_i   =  A_i / N (H_i + g_i g_i^T).

Outputs of which a free log-standard deviation is a part are the network's last layer, then the
free ones, which are the same for every sample.
"""

import torch
from torch import Tensor

from services.learner.distributions import Distribution


class OutputHessian:
    """Gradient and Hessian of the surrogate over fixed samples, with respect to the outputs."""

    def __init__(
        self,
        distribution: Distribution,
        *,
        outputs: Tensor,
        action: Tensor,
        advantage: Tensor,
        num_free: int,
    ) -> None:
        """Work out what does not depend on a direction.

        Args:
            distribution: What the outputs parametrise.
            outputs: At theta0. # [N, D]
            action: # [N, A] or [N] int64
            advantage: # [N]
            num_free: How many of the D outputs are a free log-standard deviation, at the end.
        """
        self._log_prob_hessian = distribution.log_prob_hessian(outputs, action)
        self._num_free = num_free
        self._weight = (advantage / len(advantage)).unsqueeze(1)
        self._score = distribution.terms(outputs, outputs, action).score

    @property
    def delta(self) -> Tensor:
        """Return the gradient with respect to the last layer # [N, D - num_free]."""
        return self._split(self._weight * self._score)[0]

    @property
    def free_delta(self) -> Tensor | None:
        """Return the gradient with respect to the free outputs # [N, num_free], None without."""
        return self._split(self._weight * self._score)[1]

    def product(self, tangent: Tensor, free_move: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the Hessian times a direction in which all outputs move.

        Args:
            tangent: How the last layer moves. # [N, D - num_free]
            free_move: How the free outputs move. # [num_free]

        Returns:
            As `delta` and `free_delta`.
        """
        if self._num_free:
            tangent = torch.cat((tangent, free_move.expand(len(tangent), -1)), dim=1)
        curved = self._log_prob_hessian(tangent)
        along = (self._score * tangent).sum(1, keepdim=True)
        return self._split(self._weight * curved.addcmul_(self._score, along))

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self._num_free:
            return outputs, None
        return outputs[:, : -self._num_free].contiguous(), outputs[:, -self._num_free :]
