"""The Hessian of a small convolutional policy against the exact one, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learning.networks.conv_network import ConvActorCritic
from shared.policy.blocks import Block, Conv, Dense, Flatten, Pixels
from shared.policy.head import Head
from shared.policy.spec import PolicySpec
from shared.trajectory.columns import Columns
from tests.learning.detectors.test_surrogate import objective_of

SMALL: tuple[Block, ...] = (
    Pixels(image_shape=(1, 8, 8)),
    Conv(
        channels=1,
        filters=3,
        kernel=(4, 4),
        stride=2,
        padding=((1, 1), (1, 1)),
        output_size=(4, 4),
    ),
    Conv(
        channels=3,
        filters=2,
        kernel=(2, 2),
        stride=2,
        padding=((0, 0), (0, 0)),
        output_size=(2, 2),
    ),
    Flatten(),
    Dense(inputs=8, outputs=5, activation="relu"),
)
WHOLE: tuple[Block, ...] = (
    Pixels(image_shape=(2, 7, 6)),
    Conv(
        channels=2,
        filters=3,
        kernel=(3, 3),
        stride=2,
        padding=((0, 1), (1, 1)),
        output_size=(3, 3),
    ),
    Conv(
        channels=3,
        filters=4,
        kernel=(3, 3),
        stride=1,
        padding=((0, 0), (0, 0)),
        output_size=(1, 1),
    ),
    Flatten(),
)
"""As the paper's: uneven padding, and last a filter as large as the image."""
CHOICE = Head(distribution="categorical", num_choices=(3,))


def case_of(trunk: tuple[Block, ...], features: int, head: Head) -> PolicySpec:
    outputs = Dense(inputs=features, outputs=head.num_outputs)
    return PolicySpec(network="nature_cnn", blocks=(*trunk, outputs), head=head)


Case = PolicySpec
CASES: list[Case] = [
    case_of(SMALL, 5, CHOICE),
    case_of(SMALL, 5, Head(distribution="gaussian", log_std="state_dependent", size=2)),
    case_of(SMALL, 5, Head(distribution="gaussian", log_std="free", size=2)),
    case_of(WHOLE, 4, CHOICE),
]


def network_of(case: Case) -> ConvActorCritic:
    last = case.layers[-1]
    assert isinstance(last, Dense)
    network = ConvActorCritic(case, (Dense(inputs=last.inputs, outputs=1),))
    network.flatten(dtype=torch.float64)
    noise = torch.randn(
        network.flat.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    network.flat.add_(noise, alpha=0.4)
    return network


def samples_of(case: Case, count: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    shape = (count, *case.observation_shape)
    observation = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    advantage = torch.randn(count, generator=generator, dtype=torch.float64)
    if case.head == CHOICE:
        return observation, torch.randint(3, (count,), generator=generator), advantage
    action = torch.randn((count, 2), generator=generator, dtype=torch.float64)
    return observation, action, advantage


def batch_of(case: Case) -> tuple[ConvActorCritic, Columns[Tensor]]:
    """A network in float32, and its own samples, whose values are too low."""
    network = network_of(case)
    network.flatten(dtype=torch.float32)
    observation, action, advantage = samples_of(case)
    outputs, value = network.policy_outputs(observation), network.values(observation)
    log_prob = network.distribution.log_prob(outputs, action)
    return network, Columns(
        observation=observation,
        action=action,
        advantage=advantage.float(),
        value_target=value + 1.0,
        value=value,
        log_prob=log_prob,
        outputs=outputs,
        behaviour_log_prob=log_prob,
    )


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
        outputs = network.outputs_at(parameters, observation)
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
