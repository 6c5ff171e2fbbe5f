"""IMPACT's loss against numbers computed by hand; its gradient against autograd."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.losses.impact import ImpactRule, reference_log_prob
from learning.networks.distributions import Categorical, Distribution, Gaussian
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.losses.loss_gradients import loss_gradient

PAPER = ImpactHyperparameters()
PLAIN = ImpactHyperparameters(entropy_coefficient=0.0)
CASES: list[Distribution] = [Gaussian(), Categorical()]
both_kinds = pytest.mark.parametrize(
    ("distribution", "as_arrays"),
    [*((case, False) for case in CASES), (Gaussian(), True)],
    ids=lambda value: str(value) if isinstance(value, bool) else type(value).__name__,
)


def coins(ratio: list[float], advantage: list[float]) -> tuple[Tensor, Columns[Tensor]]:
    """Fair coins: pi is 1/2, and the reference is chosen to give the wanted ratio."""
    n = len(ratio)
    return torch.zeros(n, 2), Columns(
        observation=torch.zeros(n, 1),
        action=torch.zeros(n, dtype=torch.int64),
        advantage=torch.tensor(advantage),
        value_target=torch.tensor([1.0, 2.0, 0.0, 10.0][:n]),
        value=torch.zeros(n),
        log_prob=math.log(0.5) - torch.tensor(ratio).log(),
        behaviour_log_prob=torch.zeros(n),
        outputs=torch.tensor([[math.log(3.0), 0.0]]).repeat(n, 1),
    )


def random_minibatch(
    distribution: Distribution, seed: int
) -> tuple[Tensor, Tensor, Columns[Tensor]]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    n = 30
    gaussian = isinstance(distribution, Gaussian)
    outputs = normal(n, 4)
    action = normal(n, 2) if gaussian else torch.arange(n) % 4
    log_prob = distribution.log_prob(outputs, action)
    return (
        outputs,
        2.0 * normal(n),
        Columns(
            observation=normal(n, 1),
            action=action,
            advantage=normal(n),
            value_target=2.0 * normal(n),
            value=2.0 * normal(n),
            log_prob=log_prob + 0.5 * normal(n),
            behaviour_log_prob=log_prob,
            outputs=outputs + 0.3 * normal(n, 4),
        ),
    )


@pytest.mark.parametrize(
    ("behaviour", "target", "expected"),
    [
        (0.5, 0.5, 1.0),  # all the same
        (0.5, 0.25, 2.0),  # pi / pi' = 2, mu / pi' = 2, at its bound
        (0.8, 0.25, 1.25),  # mu / pi' = 3.2 is bounded to 2: 2 * 0.5 / 0.8
        (0.1, 0.25, 2.0),  # mu / pi' = 0.4: pi / pi'
    ],
)
def test_the_ratio_is_the_bounded_three_policy_ratio(
    behaviour: float, target: float, expected: float
) -> None:
    """min(mu / pi', 2) * pi / mu for pi = 1/2."""
    mu, pi_target = (torch.tensor([math.log(p)]) for p in (behaviour, target))
    reference = reference_log_prob(pi_target, mu, importance_clip=2.0)
    assert (0.5 / reference.exp()).item() == pytest.approx(expected)
    assert min(behaviour / target, 2.0) * 0.5 / behaviour == pytest.approx(expected)


def test_hand_computed_numbers() -> None:
    """Ratios 2, 2, 1/2, 1/2 with clip .4: the pessimistic branch is clipped only when it helps.

    min(2, 1.4) = 1.4; min(-2, -1.4) = -2; min(.5, .6) = .5; min(-.5, -.6) = -.6: mean -.175.
    Halved squared value errors .5, 2, 0, 50: mean 13.125.
    """
    outputs, minibatch = coins([2.0, 2.0, 0.5, 0.5], [1.0, -1.0, 1.0, -1.0])
    value = torch.zeros(4)
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    paper = ImpactRule(hyperparameters=PAPER, kl_coefficient=1.0)
    loss = paper.loss(outputs, value, minibatch, Categorical())
    expected = 0.175 + 13.125 - 0.01 * math.log(2.0) + kl
    assert loss.item() == pytest.approx(expected, abs=1e-5)

    rule = ImpactRule(hyperparameters=PLAIN, kl_coefficient=0.0)
    gradient = loss_gradient(rule, outputs, value, minibatch, Categorical())
    # -A r / n of samples 2 and 3, times the score (1/2, -1/2) of the fair coin; clipped ones: 0.
    expected_outputs = [[0.0, 0.0], [0.25, -0.25], [-0.0625, 0.0625], [0.0, 0.0]]
    np.testing.assert_allclose(gradient.outputs.numpy(), expected_outputs, atol=1e-6)
    np.testing.assert_allclose(gradient.value.numpy(), [-0.25, -0.5, 0.0, -2.5])
    assert rule.total(gradient.stats, samples_per_step=4) == pytest.approx(13.3)
    assert gradient.stats == pytest.approx(
        {
            "policy_loss": 0.175,
            "value_loss": 13.125,
            "kl": kl,
            "entropy": math.log(2.0),
            "clip_fraction": 1.0,
        },
        abs=1e-5,
    )


@both_kinds
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.7])
@pytest.mark.parametrize("hyperparameters", [PAPER, PLAIN])
def test_the_gradient_is_autograds(
    distribution: Distribution,
    as_arrays: bool,
    kl_coefficient: float,
    hyperparameters: ImpactHyperparameters,
) -> None:
    outputs, value, minibatch = random_minibatch(distribution, seed=3)
    outputs.requires_grad_()
    value.requires_grad_()
    rule = ImpactRule(hyperparameters=hyperparameters, kl_coefficient=kl_coefficient)
    loss = rule.loss(outputs, value, minibatch, distribution)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        gradient = loss_gradient(rule, outputs, value, minibatch, distribution, as_arrays=as_arrays)
    torch.testing.assert_close(gradient.outputs, outputs.grad)
    torch.testing.assert_close(gradient.value, value.grad)
    total = rule.total(gradient.stats, samples_per_step=len(value))
    assert total == pytest.approx(loss.item())
    assert 0.0 < gradient.stats["clip_fraction"] < 1.0
