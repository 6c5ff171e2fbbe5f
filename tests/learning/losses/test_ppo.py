"""PPO's loss against numbers computed by hand and a naive loop; its gradient against autograd."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.losses.ppo import PpoRule
from learning.networks.distributions import Categorical, Distribution
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.losses.loss_gradients import loss_gradient
from tests.learning.losses.test_impact import both_kinds, coins, random_minibatch

PAPER = PpoHyperparameters()
ALL_TERMS = PpoHyperparameters(
    clip=0.2, value_clip=3.0, value_coefficient=0.7, entropy_coefficient=0.05
)
CLIPPED_STEP = STANDARD.model_copy(update={"value_coefficient": 0.7, "entropy_coefficient": 0.05})


def rule_of(hyperparameters: PpoHyperparameters, kl_coefficient: float = 0.0) -> PpoRule:
    return PpoRule(hyperparameters=hyperparameters, kl_coefficient=kl_coefficient)


def test_hand_computed_numbers() -> None:
    """Ratios 2, 2, 1/2, 1/2 with clip .3: the pessimistic branch is clipped only when it helps.

    min(2, 1.3) = 1.3; min(-2, -1.3) = -2; min(.5, .7) = .5; min(-.5, -.7) = -.7: mean -.225.
    Squared value errors 1, 4, 0, 100 -> 10: mean 3.75. Entropy log 2.
    KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2.
    """
    log2 = math.log(2.0)
    outputs, minibatch = coins([2.0, 2.0, 0.5, 0.5], [1.0, -1.0, 1.0, -1.0])
    loss = rule_of(PAPER, 0.2).loss(outputs, torch.zeros(4), minibatch, Categorical())
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert loss.item() == pytest.approx(0.225 + 3.75 + 0.2 * kl, abs=1e-5)

    gradient = loss_gradient(rule_of(PAPER), outputs, torch.zeros(4), minibatch, Categorical())
    # -A r / n of samples 2 and 3, times the score (1/2, -1/2) of the fair coin; clipped ones: 0
    expected = [[0.0, 0.0], [0.25, -0.25], [-0.0625, 0.0625], [0.0, 0.0]]
    np.testing.assert_allclose(gradient.outputs.numpy(), expected, atol=1e-6)
    # 2 (V - target) / n, and 0 where the error is clamped
    np.testing.assert_allclose(gradient.value.numpy(), [-0.5, -1.0, 0.0, 0.0])
    assert gradient.stats == pytest.approx(
        {
            "policy_loss": 0.225,
            "value_loss": 3.75,
            "kl": kl,
            "entropy": log2,
            "clip_fraction": 1.0,
            "value_clip_fraction": 0.25,
        },
        abs=1e-6,
    )


def test_hand_computed_values_with_a_clipped_step() -> None:
    """Targets 1, 2, 0, 10; values before 0; steps kept within .2; losses halved.

    Value 0.1 for target 1: within, .9^2. Value 1 for 2: 1 beside (.2 - 2)^2 = 3.24, so clipped.
    Value -1 for 0: 1 beside .04, so not clipped though beyond. Value -3 for 10: 169 beside 104.04.
    """
    outputs, minibatch = coins([1.0] * 4, [0.0] * 4)
    value = torch.tensor([0.1, 1.0, -1.0, -3.0])
    value_loss = (0.81 + 3.24 + 1.0 + 169.0) / 8
    loss = rule_of(STANDARD).loss(outputs, value, minibatch, Categorical())
    assert loss.item() == pytest.approx(0.5 * value_loss)
    gradient = loss_gradient(rule_of(STANDARD), outputs, value, minibatch, Categorical())
    # value_coefficient (V - target) / n, and 0 where the clipped step counts
    np.testing.assert_allclose(gradient.value, [-0.9 / 8, 0.0, -1.0 / 8, -13.0 / 8], rtol=1e-6)
    stats = gradient.stats
    assert stats["value_loss"] == pytest.approx(value_loss)
    assert stats["value_clip_fraction"] == 0.25


def test_rounding_does_not_decide_over_the_gradient_of_a_step_within_the_limit() -> None:
    """V - v_old + v_old is not always V in float32: both branches of the maximum are one here."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.zeros(1000, 2)
    value = 100 * torch.rand(1000, generator=generator)
    minibatch = Columns(
        observation=torch.zeros(1000, 1),
        action=torch.zeros(1000, dtype=torch.int64),
        advantage=torch.zeros(1000),
        value_target=value - 1.0,
        value=value + 0.15 * torch.randn(1000, generator=generator).clamp(-1.0, 1.0),
        log_prob=torch.full((1000,), -math.log(2.0)),
        behaviour_log_prob=torch.full((1000,), -math.log(2.0)),
        outputs=outputs,
    )
    found = loss_gradient(rule_of(STANDARD), outputs, value, minibatch, Categorical())
    torch.testing.assert_close(found.value, torch.full((1000,), 0.5 / 1000), rtol=1e-4, atol=0.0)
    assert found.stats["value_clip_fraction"] == 0.0


def naive_total(
    outputs: Tensor,
    value: Tensor,
    minibatch: Columns[Tensor],
    distribution: Distribution,
    hyperparameters: PpoHyperparameters,
    kl_coefficient: float,
) -> float:
    """The same loss, one sample after the other in Python floats."""
    h = hyperparameters
    total = 0.0
    for i in range(len(value)):
        one, action = outputs[i : i + 1], minibatch.action[i : i + 1]
        ratio = math.exp(distribution.log_prob(one, action).item() - minibatch.log_prob[i].item())
        a = minibatch.advantage[i].item()
        bounded = min(max(ratio, 1 - h.clip), 1 + h.clip)
        v, v_old, target = (x[i].item() for x in (value, minibatch.value, minibatch.value_target))
        if h.value_loss == "bounded_error":
            value_loss = min((v - target) ** 2, h.value_clip)
        else:
            v_clipped = min(max(v, v_old - h.value_clip), v_old + h.value_clip)
            value_loss = 0.5 * max((v - target) ** 2, (v_clipped - target) ** 2)
        total += -min(a * ratio, a * bounded)
        total += h.value_coefficient * value_loss
        total -= h.entropy_coefficient * distribution.entropy(one).item()
        total += kl_coefficient * distribution.kl(minibatch.outputs[i : i + 1], one).item()
    return total / len(value)


@both_kinds
@pytest.mark.parametrize("hyperparameters", [PAPER, ALL_TERMS, CLIPPED_STEP])
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.3])
def test_loss_agrees_with_a_naive_loop_and_gradient_with_autograd(
    distribution: Distribution,
    as_arrays: bool,
    hyperparameters: PpoHyperparameters,
    kl_coefficient: float,
) -> None:
    outputs, value, minibatch = random_minibatch(distribution, seed=0)
    rule = rule_of(hyperparameters, kl_coefficient)
    leaves = (outputs.clone().requires_grad_(), value.clone().requires_grad_())
    loss = rule.loss(*leaves, minibatch, distribution)
    expected = naive_total(outputs, value, minibatch, distribution, hyperparameters, kl_coefficient)
    assert loss.item() == pytest.approx(expected, rel=1e-12)

    d_outputs, d_value = torch.autograd.grad(loss, leaves)
    found = loss_gradient(rule, outputs, value, minibatch, distribution, as_arrays=as_arrays)
    torch.testing.assert_close(found.outputs, d_outputs)
    torch.testing.assert_close(found.value, d_value)
    stats = found.stats
    total = rule.total(stats, samples_per_step=len(value))
    assert total == pytest.approx(loss.item(), rel=1e-12)
    assert 0.0 < stats["clip_fraction"] < 1.0
    assert 0.0 < stats["value_clip_fraction"] < 1.0


def test_a_term_that_is_left_out_cannot_poison_the_loss() -> None:
    outputs, minibatch = coins([1.0], [1.0])
    impossible = minibatch.replaced(outputs=torch.tensor([[math.inf, 0.0]]))
    for coefficient, finite in ((0.0, True), (0.2, False)):
        given = (outputs, torch.zeros(1), impossible, Categorical())
        rule = rule_of(PAPER, coefficient)
        assert math.isfinite(rule.loss(*given).item()) is finite
        assert bool(loss_gradient(rule, *given).outputs.isfinite().all()) is finite
