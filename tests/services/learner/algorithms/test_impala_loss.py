"""IMPALA's loss against numbers computed by hand; its gradient against autograd."""

import math

import numpy as np
import pytest
import torch

from services.learner.algorithms.impala_loss import STATS, impala_gradient, impala_loss
from services.learner.distributions import Categorical, Distribution
from shared.impala_hyperparameters import ImpalaHyperparameters
from tests.services.learner.algorithms.test_impact_loss import CASES, coins, random_minibatch

SUM = ImpalaHyperparameters()
MEAN = ImpalaHyperparameters(loss_reduction="mean", entropy_coefficient=0.0, value_coefficient=0.7)


def test_hand_computed_numbers() -> None:
    """Fair coins, A = 3 and -1; targets 1 and 2, values 0.

    -3 log .5 + log .5 = 2 log 2; halved squared errors .5 and 2; entropy log 2 each.
    """
    outputs, minibatch = coins([1.0, 1.0], [3.0, -1.0])
    value, log2 = torch.zeros(2), math.log(2.0)
    total = 2.0 * log2 + 0.5 * 2.5 - 0.01 * 2.0 * log2
    assert impala_loss(outputs, value, minibatch, Categorical(), SUM).item() == pytest.approx(total)
    gradient = impala_gradient(outputs, value, minibatch, Categorical(), SUM)
    # -A times the score (1/2, -1/2); the entropy of a fair coin has no slope.
    np.testing.assert_allclose(gradient.outputs.numpy(), [[-1.5, 1.5], [0.5, -0.5]], atol=1e-6)
    np.testing.assert_allclose(gradient.value.numpy(), [-0.5, -1.0])
    stats = dict(zip(STATS, gradient.stats.tolist(), strict=True))
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert stats == pytest.approx(
        {
            "policy_loss": log2,
            "value_loss": 1.25,
            "kl": kl,
            "entropy": log2,
            "loss": total,
        },
        abs=1e-5,
    )


@pytest.mark.parametrize("distribution", CASES, ids=lambda d: d.name)
@pytest.mark.parametrize("hyperparameters", [SUM, MEAN], ids=["sum", "mean"])
def test_the_gradient_is_autograds(
    distribution: Distribution, hyperparameters: ImpalaHyperparameters
) -> None:
    outputs, value, minibatch = random_minibatch(distribution, seed=5)
    outputs.requires_grad_()
    value.requires_grad_()
    loss = impala_loss(outputs, value, minibatch, distribution, hyperparameters)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        gradient = impala_gradient(outputs, value, minibatch, distribution, hyperparameters)
    torch.testing.assert_close(gradient.outputs, outputs.grad)
    torch.testing.assert_close(gradient.value, value.grad)
    assert gradient.stats[STATS.index("loss")].item() == pytest.approx(loss.item())


def test_the_mean_is_the_sum_over_the_number_of_samples() -> None:
    distribution = CASES[0]
    outputs, value, minibatch = random_minibatch(distribution, seed=6)
    mean = SUM.model_copy(update={"loss_reduction": "mean"})
    summed, averaged = (
        impala_gradient(outputs, value, minibatch, distribution, h) for h in (SUM, mean)
    )
    torch.testing.assert_close(averaged.outputs * len(value), summed.outputs)
    torch.testing.assert_close(averaged.value * len(value), summed.value)
