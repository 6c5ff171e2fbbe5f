"""Functions of a network's parameters for detectors, and their Hessians.

The policy surrogate objective is

    L(theta) = mean_i A_i pi_theta(a_i|s_i) / pi_theta0(a_i|s_i),   to be maximised,

over the policy's parameters, at theta = theta0, where every ratio is 1. Derivatives are autograd's:
a product with the Hessian is the derivative of the gradient's graph (Pearlmutter, "Fast exact
multiplication by the Hessian", Neural Computation 6(1), 1994).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic

Parameters = Mapping[str, Tensor]
"""Parameters of a network by name."""


class Objective:
    """A function of a network's parameters, to be maximised, at their present values.

    Vectors over the parameters are in the order of `leaves`.
    """

    def __init__(
        self,
        network: ActorCritic,
        function: Callable[[Parameters], Tensor],
        *,
        policy_only: bool = True,
    ) -> None:
        """Differentiate the function once, keeping the graph.

        Args:
            network: Its parameters stay as they are.
            function: Returns a number # [], given its parameters.
            policy_only: Whether its parameters are only the policy's, or all.
        """
        parameters = leaves(network, policy_only=policy_only)
        self._leaves = tuple(parameters.values())
        self._sizes = [leaf.numel() for leaf in self._leaves]
        self.size = sum(self._sizes)
        """Number of parameters."""
        with torch.enable_grad():
            self._gradient = torch.autograd.grad(
                function(parameters),
                self._leaves,
                create_graph=True,
                materialize_grads=True,  # a user's own network may have unused parameters
            )

    def gradient(self) -> Tensor:
        """Return the gradient # [size]."""
        return torch.cat([part.detach().reshape(-1) for part in self._gradient])

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian times `direction` # [size], as a new tensor # [size]."""
        parts = torch.split(direction, self._sizes)
        along = [
            (gradient, part.view(gradient.shape))
            for gradient, part in zip(self._gradient, parts, strict=True)
            if gradient.requires_grad
        ]
        product = torch.autograd.grad(
            [gradient for gradient, _ in along],
            self._leaves,
            grad_outputs=[part for _, part in along],
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([part.reshape(-1) for part in product])


def leaves(
    network: ActorCritic, *, policy_only: bool, flat: Tensor | None = None
) -> dict[str, Tensor]:
    """Return a network's parameters by name, free log-standard deviations last, for autograd.

    Args:
        network: Their network.
        policy_only: Leave out those of the value function alone.
        flat: Take other values # [P], in the network's layout, in place of the present ones.
    """
    values = network.views_of(network.flat if flat is None else flat)
    named = {
        name: value.detach().requires_grad_()
        for name, value in values.items()
        if network.is_of_policy(name) or not policy_only
    }
    return dict(sorted(named.items(), key=lambda item: item[0] == "log_std"))


def surrogate(
    network: ActorCritic,
    parameters: Parameters,
    *,
    observation: Tensor,
    action: Tensor,
    advantage: Tensor,
) -> Tensor:
    """Return L # [] with theta0 = theta, for its derivatives.

    Args:
        network: Maps parameters to a policy.
        parameters: theta.
        observation: # [N, ...]
        action: # [N, A] or [N] int64
        advantage: # [N]
    """
    outputs = network.outputs_at(parameters, observation)
    log_prob = network.distribution.log_prob(outputs, action)
    return (advantage * torch.exp(log_prob - log_prob.detach())).mean()
