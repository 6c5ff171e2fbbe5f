"""PPO's loss against numbers computed by hand and a naive loop; its gradient against autograd."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.batch import Minibatch
from learning.losses.ppo import PpoLoss, PpoRule, ppo_loss
from learning.networks.distributions import Categorical, Distribution, Gaussian
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from tests.services.learner.algorithms.loss_gradients import LossGradient, loss_gradient

PAPER = PpoHyperparameters()
ALL_TERMS = PpoHyperparameters(
    clip=0.2, value_clip=3.0, value_coefficient=0.7, entropy_coefficient=0.05
)
CLIPPED_STEP = STANDARD.model_copy(update={"value_coefficient": 0.7, "entropy_coefficient": 0.05})
CASES: list[Distribution] = [Gaussian(), Categorical()]


def ppo_gradient(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch[Tensor],
    distribution: Distribution,
    hyperparameters: PpoHyperparameters,
    *,
    kl_coefficient: float,
    as_arrays: bool = False,
) -> LossGradient:
    rule = PpoRule(hyperparameters=hyperparameters, kl_coefficient=kl_coefficient)
    return loss_gradient(rule, outputs, value, minibatch, distribution, as_arrays=as_arrays)


def hand_minibatch(
    log_ratio: list[float], advantage: list[float]
) -> tuple[Tensor, Minibatch[Tensor]]:
    """Fair coins: log pi is -log 2, and `log_prob` is chosen to give the wanted ratio."""
    outputs = torch.zeros(len(log_ratio), 2)
    return outputs, Minibatch(
        observation=torch.zeros(len(log_ratio), 1),
        action=torch.zeros(len(log_ratio), dtype=torch.int64),
        advantage=torch.tensor(advantage),
        value_target=torch.tensor([1.0, 2.0, 0.0, 10.0][: len(log_ratio)]),
        value=torch.zeros(len(log_ratio)),
        log_prob=-math.log(2.0) - torch.tensor(log_ratio),
        outputs=torch.tensor([[math.log(3.0), 0.0]]).repeat(len(log_ratio), 1),
    )


def test_hand_computed_numbers() -> None:
    """Ratios 2, 2, 1/2, 1/2 with clip .3: the pessimistic branch is clipped only when it helps.

    min(2, 1.3) = 1.3; min(-2, -1.3) = -2; min(.5, .7) = .5; min(-.5, -.7) = -.7: mean -.225.
    Squared value errors 1, 4, 0, 100 -> 10: mean 3.75. Entropy log 2.
    KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2.
    """
    log2 = math.log(2.0)
    outputs, minibatch = hand_minibatch([log2, log2, -log2, -log2], [1.0, -1.0, 1.0, -1.0])
    loss = ppo_loss(outputs, torch.zeros(4), minibatch, Categorical(), PAPER, kl_coefficient=0.2)
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert loss.policy_loss.item() == pytest.approx(0.225, abs=1e-6)
    assert loss.value_loss.item() == pytest.approx(3.75)
    assert loss.entropy.item() == pytest.approx(log2)
    assert loss.kl.item() == pytest.approx(kl, abs=1e-6)
    assert loss.total.item() == pytest.approx(0.225 + 3.75 + 0.2 * kl, abs=1e-5)

    gradient = ppo_gradient(
        outputs, torch.zeros(4), minibatch, Categorical(), PAPER, kl_coefficient=0.0
    )
    # -A r / n of samples 2 and 3, times the score (1/2, -1/2) of the fair coin; clipped ones: 0
    expected = [[0.0, 0.0], [0.25, -0.25], [-0.0625, 0.0625], [0.0, 0.0]]
    np.testing.assert_allclose(gradient.outputs.numpy(), expected, atol=1e-6)
    # 2 (V - target) / n, and 0 where the error is clamped
    np.testing.assert_allclose(gradient.value.numpy(), [-0.5, -1.0, 0.0, 0.0])
    stats = gradient.stats
    assert stats["clip_fraction"] == 1.0
    assert stats["value_clip_fraction"] == 0.25


def test_hand_computed_values_with_a_clipped_step() -> None:
    """Targets 1, 2, 0, 10; values before 0; steps kept within .2; losses halved.

    Value 0.1 for target 1: within, .9^2. Value 1 for 2: 1 beside (.2 - 2)^2 = 3.24, so clipped.
    Value -1 for 0: 1 beside .04, so not clipped though beyond. Value -3 for 10: 169 beside 104.04.
    """
    outputs, minibatch = hand_minibatch([0.0] * 4, [0.0] * 4)
    value = torch.tensor([0.1, 1.0, -1.0, -3.0])
    h = STANDARD
    loss = ppo_loss(outputs, value, minibatch, Categorical(), h, kl_coefficient=0.0)
    assert loss.value_loss.item() == pytest.approx((0.81 + 3.24 + 1.0 + 169.0) / 8)
    assert loss.total.item() == pytest.approx(0.5 * loss.value_loss.item())
    gradient = ppo_gradient(outputs, value, minibatch, Categorical(), h, kl_coefficient=0.0)
    # value_coefficient (V - target) / n, and 0 where the clipped step counts
    np.testing.assert_allclose(gradient.value, [-0.9 / 8, 0.0, -1.0 / 8, -13.0 / 8], rtol=1e-6)
    stats = gradient.stats
    assert stats["value_loss"] == pytest.approx(loss.value_loss.item())
    assert stats["value_clip_fraction"] == 0.25


def test_rounding_does_not_decide_over_the_gradient_of_a_step_within_the_limit() -> None:
    """V - v_old + v_old is not always V in float32: both branches of the maximum are one here."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.zeros(1000, 2)
    value = 100 * torch.rand(1000, generator=generator)
    minibatch = Minibatch(
        observation=torch.zeros(1000, 1),
        action=torch.zeros(1000, dtype=torch.int64),
        advantage=torch.zeros(1000),
        value_target=value - 1.0,
        value=value + 0.15 * torch.randn(1000, generator=generator).clamp(-1.0, 1.0),
        log_prob=torch.full((1000,), -math.log(2.0)),
        outputs=outputs,
    )
    found = ppo_gradient(outputs, value, minibatch, Categorical(), STANDARD, kl_coefficient=0.0)
    torch.testing.assert_close(found.value, torch.full((1000,), 0.5 / 1000), rtol=1e-4, atol=0.0)
    assert found.stats["value_clip_fraction"] == 0.0


def random_case(
    distribution: Distribution, seed: int = 0
) -> tuple[Tensor, Tensor, Minibatch[Tensor]]:
    """New outputs, new values and a minibatch whose ratios fall on both sides of the clip."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    outputs, old = 0.5 * draw(64, 4), 0.5 * draw(64, 4)
    if distribution.name == "categorical":
        action = torch.randint(4, (64,), generator=generator)
    else:
        action = draw(64, 2)
    return (
        outputs,
        2.0 * draw(64),
        Minibatch(
            observation=draw(64, 3),
            action=action,
            advantage=draw(64),
            value_target=2.0 * draw(64),
            value=2.0 * draw(64),
            log_prob=distribution.log_prob(outputs, action) + 0.4 * draw(64),
            outputs=old,
        ),
    )


def naive_total(
    outputs: Tensor,
    value: Tensor,
    minibatch: Minibatch[Tensor],
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


@pytest.mark.parametrize(
    ("distribution", "as_arrays"),
    [*((case, False) for case in CASES), (Gaussian(), True)],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("hyperparameters", [PAPER, ALL_TERMS, CLIPPED_STEP])
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.3])
def test_loss_agrees_with_a_naive_loop_and_gradient_with_autograd(
    distribution: Distribution,
    as_arrays: bool,
    hyperparameters: PpoHyperparameters,
    kl_coefficient: float,
) -> None:
    outputs, value, minibatch = random_case(distribution)

    def loss_of(outputs: Tensor, value: Tensor) -> PpoLoss:
        return ppo_loss(
            outputs, value, minibatch, distribution, hyperparameters, kl_coefficient=kl_coefficient
        )

    leaves = (outputs.clone().requires_grad_(), value.clone().requires_grad_())
    loss = loss_of(*leaves)
    expected = naive_total(outputs, value, minibatch, distribution, hyperparameters, kl_coefficient)
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)

    d_outputs, d_value = torch.autograd.grad(loss.total, leaves)
    found = ppo_gradient(
        outputs,
        value,
        minibatch,
        distribution,
        hyperparameters,
        kl_coefficient=kl_coefficient,
        as_arrays=as_arrays,
    )
    torch.testing.assert_close(found.outputs, d_outputs)
    torch.testing.assert_close(found.value, d_value)
    stats = found.stats
    for name in ("policy_loss", "value_loss", "kl", "entropy"):
        assert stats[name] == pytest.approx(getattr(loss, name).item(), rel=1e-12)
    rule = PpoRule(hyperparameters=hyperparameters, kl_coefficient=kl_coefficient)
    total = rule.total(stats, samples_per_step=len(value))
    assert total == pytest.approx(loss.total.item(), rel=1e-12)
    assert 0.0 < stats["clip_fraction"] < 1.0
    assert 0.0 < stats["value_clip_fraction"] < 1.0


def test_a_term_that_is_left_out_cannot_poison_the_loss() -> None:
    outputs, minibatch = hand_minibatch([0.0], [1.0])
    impossible = Minibatch(
        observation=minibatch.observation,
        action=minibatch.action,
        advantage=minibatch.advantage,
        value_target=minibatch.value_target,
        value=minibatch.value,
        log_prob=minibatch.log_prob,
        outputs=torch.tensor([[math.inf, 0.0]]),
    )
    for coefficient, finite in ((0.0, True), (0.2, False)):
        loss = ppo_loss(
            outputs, torch.zeros(1), impossible, Categorical(), PAPER, kl_coefficient=coefficient
        )
        gradient = ppo_gradient(
            outputs, torch.zeros(1), impossible, Categorical(), PAPER, kl_coefficient=coefficient
        )
        assert math.isfinite(loss.total.item()) is finite
        assert bool(gradient.outputs.isfinite().all()) is finite
