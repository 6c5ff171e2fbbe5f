"""Action distributions as maths on a policy's raw outputs, with the derivatives training needs.

A policy maps a state to D numbers, from here on its *outputs*. Gaussian: D = 2A, the A means then
the A log-standard deviations of independent dimensions. Categorical: D = n logits. All methods
take a batch and are pure. Closed-form derivatives are with respect to the outputs and are tested
against autograd.

Legend: N samples; A action dimensions; D outputs.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

DistributionName = Literal["gaussian", "categorical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTerms:
    """All that one gradient step needs of the new policy, computed together to share work."""

    log_prob: Tensor  # [N], log pi(a|s)
    score: Tensor  # [N, D], derivative of log_prob
    kl: Tensor  # [N], KL(old || new)
    kl_gradient: Tensor  # [N, D]


class Distribution(Protocol):
    """A family of action distributions."""

    @property
    def name(self) -> DistributionName:
        """The family's name in a published policy's metadata."""
        ...

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]."""
        ...

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the (differential) entropy in nats, shape [N]."""
        ...

    def entropy_gradient(self, outputs: Tensor) -> Tensor:
        """Return the entropy's derivative, shape [N, D]."""
        ...

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        ...

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms:
        """Return log-probability and KL of the new outputs with their derivatives."""
        ...

    def score_derivative(self, outputs: Tensor, action: Tensor, tangent: Tensor) -> Tensor:
        """Return the Hessian of the log-probability times `tangent` per sample, shape [N, D]."""
        ...


class Gaussian:
    """Independent normal dimensions; `outputs` are means then log-standard deviations."""

    name: DistributionName = "gaussian"

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return log pi(action), shape [N]; `action` is [N, A]."""
        mean, log_std = outputs.chunk(2, dim=1)
        z = (action - mean) * torch.exp(-log_std)
        return -(0.5 * z * z + log_std).sum(1) - _HALF_LOG_TWO_PI * action.shape[1]

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the differential entropy in nats, shape [N]."""
        log_std = outputs.chunk(2, dim=1)[1]
        return log_std.sum(1) + (0.5 + _HALF_LOG_TWO_PI) * log_std.shape[1]

    def entropy_gradient(self, outputs: Tensor) -> Tensor:
        """Return the entropy's derivative, shape [N, 2A]: 0 for means, 1 for log-deviations."""
        gradient = torch.zeros_like(outputs)
        gradient.chunk(2, dim=1)[1].fill_(1.0)
        return gradient

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old || new) in nats, shape [N]."""
        old_mean, old_log_std = old.chunk(2, dim=1)
        mean, log_std = new.chunk(2, dim=1)
        shift = log_std - old_log_std
        distance = (old_mean - mean) * torch.exp(-log_std)
        return (shift + 0.5 * (torch.exp(-2.0 * shift) + distance * distance - 1.0)).sum(1)

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms:
        """Return log-probability and KL of the new outputs with their derivatives."""
        old_mean, old_log_std = old.chunk(2, dim=1)
        mean, log_std = new.chunk(2, dim=1)
        inverse_std = torch.exp(-log_std)
        z = (action - mean) * inverse_std
        z2 = z * z
        shift = log_std - old_log_std
        distance = (mean - old_mean) * inverse_std
        spread = torch.exp(-2.0 * shift).addcmul_(distance, distance)
        log_prob = -z2.mul(0.5).add_(log_std).sum(1)
        return PolicyTerms(
            log_prob=log_prob.sub_(_HALF_LOG_TWO_PI * action.shape[1]),
            score=torch.cat((z * inverse_std, z2 - 1.0), dim=1),
            kl=spread.sub(1.0).mul_(0.5).add_(shift).sum(1),
            kl_gradient=torch.cat((distance * inverse_std, 1.0 - spread), dim=1),
        )

    def score_derivative(self, outputs: Tensor, action: Tensor, tangent: Tensor) -> Tensor:
        """Return the Hessian of the log-probability times `tangent` per sample, shape [N, 2A].

        With z = (a - mean) / std, per dimension: d2/dmean2 = -1 / std^2,
        d2/dmean dlog_std = -2 z / std, d2/dlog_std2 = -2 z^2.
        """
        mean, log_std = outputs.chunk(2, dim=1)
        inverse_std = torch.exp(-log_std)
        z = (action - mean) * inverse_std
        move_mean, move_log_std = tangent.chunk(2, dim=1)
        scaled = move_mean * inverse_std + 2.0 * z * move_log_std
        return torch.cat(
            (-scaled * inverse_std, -2.0 * z * (move_mean * inverse_std + z * move_log_std)), dim=1
        )


class Categorical:
    """One of n actions; `outputs` are logits, `action` is [N] int64."""

    name: DistributionName = "categorical"

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

    def terms(self, old: Tensor, new: Tensor, action: Tensor) -> PolicyTerms:
        """Return log-probability and KL of the new outputs with their derivatives."""
        old_log_p = torch.log_softmax(old, dim=1)
        log_p = torch.log_softmax(new, dim=1)
        old_p, p = old_log_p.exp(), log_p.exp()
        index = action.unsqueeze(1)
        return PolicyTerms(
            log_prob=log_p.gather(1, index).squeeze(1),
            score=(-p).scatter_add_(1, index, torch.ones_like(p[:, :1])),
            kl=(old_p * (old_log_p - log_p)).sum(1),
            kl_gradient=p - old_p,
        )

    def score_derivative(self, outputs: Tensor, action: Tensor, tangent: Tensor) -> Tensor:
        """Return the Hessian of the log-probability times `tangent` per sample, shape [N, n].

        The Hessian is -(diag(p) - p p^T), whatever the action.
        """
        p = torch.softmax(outputs, dim=1)
        return p * ((p * tangent).sum(1, keepdim=True) - tangent)
