"""The policy surrogate objective of a convolutional network, and its Hessian times vectors.

The same function as in `services.learner.surrogate`, differentiated twice by autograd: the gradient
is computed once with its graph, and each product is one pass back through that graph (Pearlmutter,
"Fast exact multiplication by the Hessian", Neural Computation 6(1), 1994, section 2). Rectified
layers have no curvature of their own; the Hessian is that of the piece the parameters are on.
"""

import torch
from torch import Tensor

from services.learner.conv_network import ConvActorCritic


class ConvSurrogate:
    """The surrogate over fixed samples at the network's present policy; never changes either.

    Vectors over the policy's parameters, the trunk included, are ordered by layer, weight before
    bias, with a free log-standard deviation at the end.
    """

    def __init__(
        self, network: ConvActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> None:
        """Run the network forward and backward once, and keep the graph.

        Args:
            network: Its present policy is theta0.
            observation: # [N, C, H, W]
            action: # [N, A] or [N] int64
            advantage: # [N]
        """
        parameters = {
            name: parameter.detach().clone().requires_grad_()
            for name, parameter in network.named_parameters()
            if not name.startswith("value.")
        }
        log_std = parameters.pop("log_std", None)
        self._parameters = [*parameters.values(), *([] if log_std is None else [log_std])]
        self.size = sum(parameter.numel() for parameter in self._parameters)
        with torch.enable_grad():
            outputs = network.head(parameters, network.features(parameters, observation))
            if log_std is not None:
                outputs = torch.cat((outputs, log_std.expand(len(outputs), -1)), dim=1)
            log_prob = network.distribution.log_prob(outputs, action)
            objective = (advantage * torch.exp(log_prob - log_prob.detach())).mean()
            gradients = torch.autograd.grad(objective, self._parameters, create_graph=True)
            self._gradient = torch.cat([gradient.reshape(-1) for gradient in gradients])

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        products = torch.autograd.grad(
            self._gradient, self._parameters, direction, retain_graph=True
        )
        return torch.cat([product.reshape(-1) for product in products])
