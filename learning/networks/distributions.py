"""Action distributions as maths on their parameters, with the derivatives training needs.

A policy network maps a state to D distribution parameters, here called `outputs`. Gaussian: D = 2A,
the A means, then the A log-standard deviations of independent dimensions. Categorical: D = n
logits. MultiCategorical: the logits of several choices side by side. All methods take a batch and
are pure. Derivatives by the distribution parameters are closed forms, tested against autograd.

Legend: N samples; A action dimensions; D distribution parameters.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from learning.networks.step_terms import (
    HALF_LOG_TWO_PI,
    GaussianTerms,
    PolicyTerms,
    StepTerms,
    normal_log_prob,
)
from shared.policy.formulas import FormulaHead
from shared.policy.head import Head
from shared.policy.registry import HEADS


class Distribution(StepTerms[Tensor], Protocol):
    """A family of action distributions."""

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]."""
        ...

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the (differential) entropy in nats, shape [N]."""
        ...

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        ...


class Gaussian(GaussianTerms):
    """Independent normal dimensions; `outputs` are means then log-standard deviations."""

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]; `action` is [N, A]."""
        mean, log_std = outputs.chunk(2, dim=1)
        z = (action - mean) * torch.exp(-log_std)
        return normal_log_prob(log_std.sum(1), z * z)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the differential entropy in nats, shape [N]."""
        log_std = outputs.chunk(2, dim=1)[1]
        return log_std.sum(1) + (0.5 + HALF_LOG_TWO_PI) * log_std.shape[1]

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        old_mean, old_log_std = old.chunk(2, dim=1)
        mean, log_std = new.chunk(2, dim=1)
        shift = log_std - old_log_std
        distance = (old_mean - mean) * torch.exp(-log_std)
        return (shift + 0.5 * (torch.exp(-2.0 * shift) + distance * distance - 1.0)).sum(1)


class Categorical:
    """One of n actions; `outputs` are logits, `action` is [N] int64."""

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]."""
        chosen = torch.log_softmax(outputs, dim=1).gather(1, action.unsqueeze(1))
        return chosen.squeeze(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy in nats, shape [N]."""
        log_p = torch.log_softmax(outputs, dim=1)
        return -(log_p.exp() * log_p).sum(1)

    def entropy_gradient(self, outputs: Tensor) -> Tensor:
        """Return the entropy's derivative -p (log p + H), shape [N, n]."""
        log_p = torch.log_softmax(outputs, dim=1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(1, keepdim=True)
        return -p * (log_p + entropy)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        old_log_p = torch.log_softmax(old, dim=1)
        return (old_log_p.exp() * (old_log_p - torch.log_softmax(new, dim=1))).sum(1)

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms[Tensor]:
        """Return log-probability and KL with their gradients, and the entropy."""
        old_log_p = torch.log_softmax(old, dim=1)
        log_p = torch.log_softmax(new, dim=1)
        old_p, p = old_log_p.exp(), log_p.exp()
        index = action.unsqueeze(1)
        return PolicyTerms(
            log_prob=log_p.gather(1, index).squeeze(1),
            score=(-p).scatter_add_(1, index, torch.ones_like(p[:, :1])),
            kl=(old_p * (old_log_p - log_p)).sum(1),
            entropy=-(p * log_p).sum(1),
            kl_gradient=lambda: p - old_p,
        )


class MultiCategorical:
    """Several independent choices; `outputs` are all logits in a row, `action` is [N, A] int64.

    Everything is a sum over the choices, as the joint probability is their product.
    """

    def __init__(self, num_choices: Sequence[int]) -> None:
        self.num_choices = tuple(num_choices)
        self._one = Categorical()

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]."""
        parts = zip(self._split(outputs), action.unbind(1), strict=True)
        return _total([self._one.log_prob(logits, chosen) for logits, chosen in parts])

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy in nats, shape [N]."""
        return _total([self._one.entropy(logits) for logits in self._split(outputs)])

    def entropy_gradient(self, outputs: Tensor) -> Tensor:
        """Return the entropy's derivative, shape [N, D]."""
        return torch.cat(
            [self._one.entropy_gradient(logits) for logits in self._split(outputs)], dim=1
        )

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        pairs = zip(self._split(old), self._split(new), strict=True)
        return _total([self._one.kl(*pair) for pair in pairs])

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms[Tensor]:
        """Return log-probability and KL with their gradients, and the entropy."""
        parts = [
            self._one.terms(*part)
            for part in zip(self._split(old), self._split(new), action.unbind(1), strict=True)
        ]
        return PolicyTerms(
            log_prob=_total([part.log_prob for part in parts]),
            score=torch.cat([part.score for part in parts], dim=1),
            kl=_total([part.kl for part in parts]),
            entropy=_total([part.entropy for part in parts]),
            kl_gradient=lambda: torch.cat([part.kl_gradient() for part in parts], dim=1),
        )

    def _split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(outputs, self.num_choices, dim=1)


class OwnDistribution:
    """One with formulas in a file of its own; its derivatives are autograd's."""

    def __init__(self, formulas: FormulaHead) -> None:
        self._formulas = formulas

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]."""
        log_prob: Tensor = self._formulas.log_prob(torch, outputs, action)
        return log_prob

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the differential entropy in nats, shape [N]."""
        entropy: Tensor = self._formulas.entropy(torch, outputs)
        return entropy

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        kl: Tensor = self._formulas.kl(torch, old, new)
        return kl

    def entropy_gradient(self, outputs: Tensor) -> Tensor:
        """Return the entropy's derivative, shape [N, D]."""
        return _slope(self.entropy, outputs)[1]

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms[Tensor]:
        """Return log-probability and KL with their gradients, and the entropy."""
        with torch.inference_mode(False):  # gradient steps run in it, and autograd saves these
            old, action = old.clone(), action.clone()
        log_prob, score = _slope(lambda outputs: self.log_prob(outputs, action), new)
        return PolicyTerms(
            log_prob=log_prob,
            score=score,
            kl=self.kl(old, new),
            entropy=self.entropy(new),
            kl_gradient=lambda: _slope(lambda outputs: self.kl(old, outputs), new)[1],
        )


def _slope(function: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return a function's values # [N] at outputs # [N, D], and their derivatives # [N, D]."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = outputs.detach().clone().requires_grad_()
        values = function(leaf)
        (slope,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), slope


def distribution_of(head: Head) -> Distribution:
    """Return the distribution that a policy's outputs parametrise, of those with closed forms."""
    if head.distribution in HEADS:
        return OwnDistribution(HEADS[head.distribution])
    if head.distribution == "gaussian":
        return Gaussian()
    if head.distribution == "categorical":
        return Categorical()
    if head.distribution == "multi_categorical":
        return MultiCategorical(head.num_choices)
    raise ValueError(f"{head.distribution} has no derivatives in closed form")


def _total(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of shape [N]."""
    return torch.stack(tuple(parts)).sum(0)
