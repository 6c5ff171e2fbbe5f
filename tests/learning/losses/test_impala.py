"""IMPALA's loss against numbers computed by hand; its gradient against autograd."""

import math

import numpy as np
import pytest
import torch

from learning.losses.impala import ImpalaRule
from learning.networks.distributions import Categorical, Distribution
from shared.hyperparameters.impala import ImpalaHyperparameters
from tests.learning.losses.loss_gradients import loss_gradient
from tests.learning.losses.test_impact import (
    CASES,
    both_kinds,
    coins,
    random_minibatch,
)

SUM = ImpalaHyperparameters()
MEAN = ImpalaHyperparameters(loss_reduction="mean", entropy_coefficient=0.0, value_coefficient=0.7)


def test_hand_computed_numbers() -> None:
    """Fair coins, A = 3 and -1; targets 1 and 2, values 0.

    -3 log .5 + log .5 = 2 log 2; halved squared errors .5 and 2; entropy log 2 each.
    """
    outputs, minibatch = coins([1.0, 1.0], [3.0, -1.0])
    value, log2 = torch.zeros(2), math.log(2.0)
    total = 2.0 * log2 + 0.5 * 2.5 - 0.01 * 2.0 * log2
    rule = ImpalaRule(hyperparameters=SUM)
    loss = rule.loss(outputs, value, minibatch, Categorical())
    assert loss.item() == pytest.approx(total)
    gradient = loss_gradient(rule, outputs, value, minibatch, Categorical())
    # -A times the score (1/2, -1/2); the entropy of a fair coin has no gradient.
    np.testing.assert_allclose(gradient.outputs.numpy(), [[-1.5, 1.5], [0.5, -0.5]], atol=1e-6)
    np.testing.assert_allclose(gradient.value.numpy(), [-0.5, -1.0])
    assert rule.total(gradient.stats, samples_per_step=2) == pytest.approx(total)
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert gradient.stats == pytest.approx(
        {"policy_loss": log2, "value_loss": 1.25, "kl": kl, "entropy": log2}, abs=1e-5
    )


@both_kinds
@pytest.mark.parametrize("hyperparameters", [SUM, MEAN], ids=["sum", "mean"])
def test_the_gradient_is_autograds(
    distribution: Distribution, as_arrays: bool, hyperparameters: ImpalaHyperparameters
) -> None:
    outputs, value, minibatch = random_minibatch(distribution, seed=5)
    outputs.requires_grad_()
    value.requires_grad_()
    rule = ImpalaRule(hyperparameters=hyperparameters)
    loss = rule.loss(outputs, value, minibatch, distribution)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        gradient = loss_gradient(rule, outputs, value, minibatch, distribution, as_arrays=as_arrays)
    torch.testing.assert_close(gradient.outputs, outputs.grad)
    torch.testing.assert_close(gradient.value, value.grad)
    total = rule.total(gradient.stats, samples_per_step=len(value))
    assert total == pytest.approx(loss.item())


def test_the_mean_is_the_sum_over_the_number_of_samples() -> None:
    distribution = CASES[0]
    outputs, value, minibatch = random_minibatch(distribution, seed=6)
    mean = SUM.model_copy(update={"loss_reduction": "mean"})
    summed, averaged = (
        loss_gradient(ImpalaRule(hyperparameters=h), outputs, value, minibatch, distribution)
        for h in (SUM, mean)
    )
    torch.testing.assert_close(averaged.outputs * len(value), summed.outputs)
    torch.testing.assert_close(averaged.value * len(value), summed.value)
