"""Minus PPO's whole loss at the new policy, and its Hessian as products with vectors.

The published code of the paper differentiates the total loss: clipped surrogate, value error, KL
and entropy together, over policy and value function, at the ratio to the policy that sampled. It is
here for comparison. The sign is turned, so that this too is a function to be maximised.
"""

import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.algorithms.minibatch import Minibatch
from services.learner.algorithms.ppo_loss import ppo_loss
from services.learner.mlp import Layer
from services.learner.mlp_network import MlpActorCritic
from shared.ppo_hyperparameters import PpoHyperparameters


class NegativeTotalLoss:
    """Minus the loss over fixed samples at the network's present parameters; changes neither.

    Vectors are over all parameters, in the order of `named_parameters`. The products are
    autograd's, and dearer than those of `PolicySurrogate`.
    """

    def __init__(
        self,
        network: ActorCritic,
        minibatch: Minibatch[Tensor],
        hyperparameters: PpoHyperparameters,
        *,
        kl_coefficient: float,
    ) -> None:
        """Differentiate the loss once, keeping the graph.

        Raises:
            ValueError: The network is no tanh MLP.

        Args:
            network: Its present parameters are the point.
            minibatch: The samples, with the policy they were made by.
            hyperparameters: Clips and coefficients of the loss.
            kl_coefficient: The present weight of its KL term.
        """
        if not isinstance(network, MlpActorCritic):
            raise ValueError(
                "detector.objective is 'total_loss', which is measured for vector observations "
                "only: use 'surrogate' with images"
            )
        named = {
            name: view.detach().clone().requires_grad_()
            for name, view in network.views_of(network.flat).items()
        }
        self._parameters = tuple(named.values())
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self.size = sum(self._sizes)
        raw = _forward(network.layers("policy", named), minibatch.observation)
        free = named.get("log_std")
        outputs = raw if free is None else torch.cat((raw, free.expand(len(raw), -1)), dim=1)
        value = _forward(network.layers("value", named), minibatch.observation).squeeze(1)
        loss = ppo_loss(
            outputs,
            value,
            minibatch,
            network.distribution,
            hyperparameters,
            kl_coefficient=kl_coefficient,
        )
        self._gradient = torch.autograd.grad(-loss.total, self._parameters, create_graph=True)

    def gradient(self) -> Tensor:
        """Return the gradient # [size]."""
        return torch.cat([part.detach().flatten() for part in self._gradient])

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian times `direction` # [size], as a new tensor # [size]."""
        parts = torch.split(direction, self._sizes)
        moves = [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]
        product = torch.autograd.grad(
            self._gradient,
            self._parameters,
            grad_outputs=moves,
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([part.flatten() for part in product])


def _forward(layers: tuple[Layer[Tensor], ...], x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = torch.tanh(torch.nn.functional.linear(x, layer.weight, layer.bias))
    return torch.nn.functional.linear(x, layers[-1].weight, layers[-1].bias)
