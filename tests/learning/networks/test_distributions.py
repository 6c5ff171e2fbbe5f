"""Distribution maths against torch.distributions, and closed-form derivatives against autograd."""

import pytest
import torch
from torch import Tensor

from learning.networks.distributions import Categorical, Distribution, Gaussian, MultiCategorical

GAUSSIAN, CATEGORICAL = Gaussian(), Categorical()
CHOICES = (1, 3, 2)
CASES: list[Distribution] = [GAUSSIAN, CATEGORICAL, MultiCategorical(CHOICES)]


def samples(distribution: Distribution, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Old outputs, new outputs and actions, in float64."""
    generator = torch.Generator().manual_seed(seed)
    old, new = torch.randn((2, 20, 6), generator=generator, dtype=torch.float64)
    if isinstance(distribution, Categorical):
        return old, new, torch.randint(6, (20,), generator=generator)
    if isinstance(distribution, MultiCategorical):
        chosen = [torch.randint(n, (20,), generator=generator) for n in CHOICES]
        return old, new, torch.stack(chosen, dim=1)
    return old, new, torch.randn((20, 3), generator=generator, dtype=torch.float64)


def reference(distribution: Distribution, outputs: Tensor) -> torch.distributions.Distribution:
    if isinstance(distribution, Categorical):
        return torch.distributions.Categorical(logits=outputs)
    mean, log_std = outputs.chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    return torch.distributions.Independent(normal, 1)


@pytest.mark.parametrize("distribution", CASES[:2], ids=lambda case: type(case).__name__)
def test_values_agree_with_torch_distributions(distribution: Distribution) -> None:
    old, new, action = samples(distribution)
    old_reference, new_reference = reference(distribution, old), reference(distribution, new)
    log_prob = new_reference.log_prob(action)
    kl = torch.distributions.kl_divergence(old_reference, new_reference)
    entropy = new_reference.entropy()
    torch.testing.assert_close(distribution.log_prob(new, action), log_prob)
    torch.testing.assert_close(distribution.kl(old, new), kl)
    torch.testing.assert_close(distribution.entropy(new), entropy)
    terms = distribution.terms(old, new, action)
    torch.testing.assert_close(terms.log_prob, log_prob)
    torch.testing.assert_close(terms.kl, kl)
    torch.testing.assert_close(terms.entropy, entropy)


def test_several_choices_add_up() -> None:
    distribution = MultiCategorical(CHOICES)
    old, new, action = samples(distribution)
    log_prob, kl, entropy = torch.zeros(3, 20, dtype=torch.float64)
    ends = torch.tensor(CHOICES).cumsum(0).tolist()
    for i, (end, n) in enumerate(zip(ends, CHOICES, strict=True)):
        before, after = (
            reference(CATEGORICAL, outputs[:, end - n : end]) for outputs in (old, new)
        )
        log_prob += after.log_prob(action[:, i])
        kl += torch.distributions.kl_divergence(before, after)
        entropy += after.entropy()
    torch.testing.assert_close(distribution.log_prob(new, action), log_prob)
    torch.testing.assert_close(distribution.kl(old, new), kl)
    torch.testing.assert_close(distribution.entropy(new), entropy)
    terms = distribution.terms(old, new, action)
    torch.testing.assert_close(terms.log_prob, log_prob)
    torch.testing.assert_close(terms.kl, kl)
    torch.testing.assert_close(terms.entropy, entropy)


@pytest.mark.parametrize("distribution", CASES, ids=lambda case: type(case).__name__)
def test_first_derivatives_agree_with_autograd(distribution: Distribution) -> None:
    old, new, action = samples(distribution)
    leaf = new.clone().requires_grad_()
    terms = distribution.terms(old, new, action)

    (score,) = torch.autograd.grad(distribution.log_prob(leaf, action).sum(), leaf)
    torch.testing.assert_close(terms.score, score)
    (kl_gradient,) = torch.autograd.grad(distribution.kl(old, leaf).sum(), leaf)
    torch.testing.assert_close(terms.kl_gradient(), kl_gradient)
    (entropy_gradient,) = torch.autograd.grad(distribution.entropy(leaf).sum(), leaf)
    torch.testing.assert_close(distribution.entropy_gradient(new), entropy_gradient)


@pytest.mark.parametrize("distribution", CASES, ids=lambda case: type(case).__name__)
def test_kl_of_a_policy_with_itself_is_exactly_zero(distribution: Distribution) -> None:
    old, _, action = samples(distribution)
    terms = distribution.terms(old, old, action)
    assert not terms.kl.any()
    assert not terms.kl_gradient().any()


def test_the_ratio_to_a_policy_with_equal_outputs_is_exactly_one() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(4096, 6, generator=generator)
    action = torch.randn(4096, 3, generator=generator)
    gaussian = Gaussian()
    found = gaussian.terms(outputs, outputs, action).log_prob
    assert torch.equal(found, gaussian.log_prob(outputs, action))


def test_no_draw_from_a_standard_normal_beats_its_mode() -> None:
    outputs = torch.zeros(1, 2)
    at_mode = GAUSSIAN.log_prob(outputs, torch.zeros(1, 1))
    assert at_mode.item() == pytest.approx(-0.9189385)
