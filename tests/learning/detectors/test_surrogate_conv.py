"""The Hessian of a small convolutional policy against the exact one, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learning.networks.conv_network import ConvActorCritic
from learning.networks.distributions import Categorical, Distribution, Gaussian
from shared.policy.conv_layers import ConvLayers, Convolution
from tests.learning.detectors.test_surrogate import objective_of

SMALL = ConvLayers(
    name="nature_cnn",
    image_shape=(1, 8, 8),
    convolutions=(
        Convolution(
            channels=1,
            filters=3,
            kernel=(4, 4),
            stride=2,
            padding=((1, 1), (1, 1)),
            output_size=(4, 4),
        ),
        Convolution(
            channels=3,
            filters=2,
            kernel=(2, 2),
            stride=2,
            padding=((0, 0), (0, 0)),
            output_size=(2, 2),
        ),
    ),
    dense=(5,),
)
WHOLE = ConvLayers(
    name="paper_cnn",
    image_shape=(2, 7, 6),
    convolutions=(
        Convolution(
            channels=2,
            filters=3,
            kernel=(3, 3),
            stride=2,
            padding=((0, 1), (1, 1)),
            output_size=(3, 3),
        ),
        Convolution(
            channels=3,
            filters=4,
            kernel=(3, 3),
            stride=1,
            padding=((0, 0), (0, 0)),
            output_size=(1, 1),
        ),
    ),
    dense=(),
)
"""As the paper's: uneven padding, and last a filter as large as the image."""
Case = tuple[ConvLayers, Distribution, int, int | None]
CASES: list[Case] = [
    (SMALL, Categorical(), 3, None),
    (SMALL, Gaussian(), 4, None),
    (SMALL, Gaussian(), 2, 2),
    (WHOLE, Categorical(), 3, None),
]


def network_of(case: Case) -> ConvActorCritic:
    layers, distribution, num_outputs, free = case
    network = ConvActorCritic(
        layers=layers, policy_outputs=num_outputs, distribution=distribution, free_log_std=free
    )
    network.flatten(dtype=torch.float64)
    noise = torch.randn(
        network.flat.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    network.flat.add_(noise, alpha=0.4)
    return network


def samples_of(case: Case, count: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    shape = (count, *case[0].image_shape)
    observation = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    advantage = torch.randn(count, generator=generator, dtype=torch.float64)
    if isinstance(case[1], Categorical):
        return observation, torch.randint(3, (count,), generator=generator), advantage
    action = torch.randn((count, 2), generator=generator, dtype=torch.float64)
    return observation, action, advantage


def plain_objective(
    network: ConvActorCritic, case: Case
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The plain formula as a function of the policy's parameters, and where it is looked at."""
    observation, action, advantage = samples_of(case)
    names = [name for name, _ in network.named_parameters() if not name.startswith("value.")]
    names = sorted(names, key=lambda name: name == "log_std")  # last, and otherwise as they come
    start = torch.cat([network.get_parameter(name).reshape(-1) for name in names])
    shapes = [network.get_parameter(name).shape for name in names]

    def objective(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        parameters = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        outputs = network.head(parameters, network.features(parameters, observation))
        if "log_std" in parameters:
            outputs = torch.cat((outputs, parameters["log_std"].expand(len(outputs), -1)), dim=1)
        log_prob = network.distribution.log_prob(outputs, action)
        return (advantage * torch.exp(log_prob - log_prob.detach())).mean()

    return objective, start.detach()


@pytest.mark.parametrize("case", CASES)
def test_gradient_and_products_are_those_of_the_plain_formula(case: Case) -> None:
    network = network_of(case)
    before = network.flat.clone()
    surrogate = objective_of(network, *samples_of(case))
    plain = plain_objective(network, case)
    gradient: Tensor = torch.autograd.functional.jacobian(*plain)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(surrogate.gradient(), gradient)
    hessian: Tensor = torch.autograd.functional.hessian(*plain)  # type: ignore[no-untyped-call]
    assert surrogate.size == len(hessian)
    with torch.no_grad():
        rows = [surrogate.hessian_product(row) for row in torch.eye(surrogate.size).double()]
    torch.testing.assert_close(torch.stack(rows), hessian)
    assert torch.equal(network.flat, before)
