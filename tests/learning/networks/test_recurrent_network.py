"""The recurrent network's outputs, values and gradients against torch's own cells, step by step."""

import pytest
import torch
from torch import Tensor, nn

from learning.losses.ppo import PpoRule
from learning.networks.recurrent_network import RecurrentActorCritic
from learning.updates.network_gradients import NetworkGradients
from shared.hyperparameters.ppo import STANDARD
from shared.trajectory.columns import Columns
from tests.learning.trajectories import CONTINUOUS
from tests.shared.policy.recurrent_policies import recurrent_network

LENGTH, SEQUENCES, OBSERVED, UNITS = 7, 4, 5, 5


def sequences(state_size: int) -> Tensor:
    """Rows # [n, L, R] in which some episodes begin, and some rows have states of their own."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(SEQUENCES, LENGTH, 1 + state_size + OBSERVED, generator=generator)
    rows[..., 0] = 0.0
    rows[0, 0, 0] = rows[1, 3, 0] = rows[1, 4, 0] = rows[3, 6, 0] = 1.0
    rows[1, 3, 1 : 1 + state_size] = 0.0  # an episode begins
    return rows


def plainly(
    network: RecurrentActorCritic, parameters: dict[str, Tensor], rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs # [N, D] and values # [N], a row at a time, with torch's cells."""
    recurrent = network.spec.recurrent
    assert recurrent is not None
    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[recurrent.cell](6, UNITS)
    weight, bias = parameters["policy.1.weight"], parameters["policy.1.bias"]
    own = {
        "weight_ih": weight[:, :6],
        "weight_hh": weight[:, 6:],
        "bias_ih": bias,
        "bias_hh": torch.zeros_like(bias),
    }
    size, outputs, values = recurrent.state_size, [], []
    for sequence in rows:
        state = sequence[:1, 1 : 1 + size]
        for row in sequence:
            if row[0]:
                state = row[1 : 1 + size].unsqueeze(0)
            seen = torch.tanh(
                row[1 + size :] @ parameters["policy.0.weight"].t() + parameters["policy.0.bias"]
            ).unsqueeze(0)
            before = state.split(UNITS, 1) if recurrent.cell == "lstm" else state
            after = torch.func.functional_call(cell, own, (seen, before))
            state = torch.cat(after, 1) if recurrent.cell == "lstm" else after
            hidden = state[:, :UNITS]
            outputs.append(hidden @ parameters["policy.2.weight"].t() + parameters["policy.2.bias"])
            values.append(hidden @ parameters["value.0.weight"].t() + parameters["value.0.bias"])
    return torch.cat(outputs), torch.cat(values).squeeze(1)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_outputs_values_and_gradient_are_those_of_torchs_cells(cell: str) -> None:
    network = recurrent_network(CONTINUOUS, cell)
    rows = sequences(network.spec.state_size)
    num_samples = SEQUENCES * LENGTH
    generator = torch.Generator().manual_seed(6)
    old = torch.randn(num_samples, 4, generator=generator) / 3
    minibatch = Columns(
        observation=rows,
        action=torch.randn(num_samples, 2, generator=generator),
        advantage=torch.randn(num_samples, generator=generator),
        value_target=torch.randn(num_samples, generator=generator),
        value=torch.randn(num_samples, generator=generator),
        log_prob=torch.randn(num_samples, generator=generator) - 3.0,
        behaviour_log_prob=torch.zeros(num_samples),
        outputs=old,
    )
    rule = PpoRule(
        hyperparameters=STANDARD.model_copy(update={"entropy_coefficient": 0.1}),
        kl_coefficient=0.2,
    )
    parameters = {name: each.detach().requires_grad_() for name, each in network.named_parameters()}
    outputs, values = plainly(network, parameters, rows)
    loss = rule.loss(outputs, values, minibatch, network.distribution)
    expected = torch.autograd.grad(loss, [*parameters.values()])
    with torch.no_grad():
        torch.testing.assert_close(network.outputs_at(parameters, rows), outputs)
        torch.testing.assert_close(network.values_at(parameters, rows), values)
    source = NetworkGradients(
        network.differentiate, rule, network.distribution, into=network.new_gradient()
    )
    with network.without_graph():
        found = network.views_of(source.gradient(minibatch).flat)
    for name, derivative in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[name], derivative, rtol=1e-4, atol=1e-5)
        assert derivative.abs().max() > 1e-4


def test_rows_alone_are_sequences_of_one() -> None:
    network = recurrent_network(CONTINUOUS, "lstm")
    rows = sequences(network.spec.state_size)[:, 0]
    parameters = dict(network.named_parameters())
    torch.testing.assert_close(
        network.outputs_at(parameters, rows), network.outputs_at(parameters, rows.unsqueeze(1))
    )
