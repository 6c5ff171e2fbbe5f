"""The scheduler's network in plain Python, PyTorch as the oracle."""

import json
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.contracts.minions_agent import (
    DenseLayer,
    MinionsAgent,
    SchedulerState,
    choice_probabilities,
    drawn_count,
)

SCALES = (50.0, 1.0, 600.0, 0.01, 2.0, 2.0, 4.0, 5.0)


def network(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh())
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 64)).double()


def as_agent(model: torch.nn.Sequential) -> MinionsAgent:
    linear = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    layers = [{"weights": x.weight.tolist(), "biases": x.bias.tolist()} for x in linear]
    return MinionsAgent.model_validate({"scales": SCALES, "layers": layers})


MODEL = network()
AGENT = as_agent(MODEL)


def state(*numbers: float) -> SchedulerState:
    names = ("round_index", "learner_loss", "mean_return", "kl")
    times = ("learner_s", "actor_s", "remaining_usd")
    return SchedulerState(**dict(zip((*names, *times), numbers, strict=True)))


@given(numbers=st.lists(st.floats(-1e3, 1e3), min_size=7, max_size=7))
def test_probabilities_are_torchs(numbers: list[float]) -> None:
    vector = torch.tensor(state(*numbers).vector, dtype=torch.float64)
    seen = (vector / torch.tensor(SCALES)).clamp(-50, 50)
    with torch.no_grad():
        expected = torch.softmax(MODEL(seen), dim=-1).tolist()
    assert choice_probabilities(AGENT, state(*numbers)) == pytest.approx(expected, abs=1e-9)


@given(numbers=st.lists(st.floats(-1e308, 1e308), min_size=7, max_size=7))
def test_any_finite_state_gives_a_distribution(numbers: list[float]) -> None:
    probabilities = choice_probabilities(AGENT, state(*numbers))
    assert len(probabilities) == AGENT.num_choices == 64
    assert sum(probabilities) == pytest.approx(1.0)
    assert min(probabilities) >= 0.0


@pytest.mark.parametrize(
    ("uniform", "count"), [(0.0, 1), (0.249, 1), (0.25, 3), (0.999, 3), (1.0, 3)]
)
def test_the_draw_is_the_inverse_of_the_distribution(uniform: float, count: int) -> None:
    assert drawn_count((0.25, 0.0, 0.75), uniform) == count


def test_an_agent_survives_its_file() -> None:
    text = AGENT.model_dump_json()
    assert MinionsAgent.model_validate_json(text) == AGENT


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        ([], "at least 1 item"),
        ([{"weights": [], "biases": []}], "at least one row"),
        ([{"weights": [[]], "biases": [0.0]}], "at least one row and one column"),
        ([{"weights": [[1.0] * 8, [1.0] * 7], "biases": [0.0, 0.0]}], "one length"),
        ([{"weights": [[1.0] * 8], "biases": [0.0, 0.0]}], "as many as the 1 rows"),
        ([{"weights": [[1.0] * 7], "biases": [0.0]}], r"0 \(7 columns\) must have 8 columns"),
        ([{"weights": [[1.0] * 9], "biases": [0.0]}], r"0 \(9 columns\) must have 8 columns"),
        ([{"weights": [[1.0] * 8] * 8, "biases": [0.0] * 8}] * 9, "at most 8 items"),
        ([{"weights": [[1.0] * 8] * 2000, "biases": [0.0] * 2000}], "at most 10000"),
        ([{"weights": [["1"] * 8], "biases": [0.0]}], "valid number"),
        ([{"weights": [[math.nan] * 8], "biases": [0.0]}], "finite number"),
        ([{"weights": [[1.0] * 8], "biases": [math.inf]}], "finite number"),
    ],
)
def test_what_is_no_network_is_refused(layers: list[object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        MinionsAgent.model_validate({"layers": layers})


def zero_layers(*sizes: int) -> list[DenseLayer]:
    return [
        DenseLayer(weights=((0.0,) * inputs,) * outputs, biases=(0.0,) * outputs)
        for inputs, outputs in pairwise((8, *sizes))
    ]


def test_a_network_has_ten_thousand_numbers_at_most_biases_included() -> None:
    assert 9 * 7 + 8 * 50 + 51 * 187 == 10_000
    assert MinionsAgent.model_validate({"layers": zero_layers(7, 50, 187)}).num_choices == 187
    assert 9 * 6 + 7 * 62 + 63 * 151 == 10_001
    with pytest.raises(ValidationError, match=r"layers \(10001 numbers\) must have at most 10000"):
        MinionsAgent.model_validate({"layers": zero_layers(6, 62, 151)})


def test_without_scales_the_network_gets_the_state_as_it_is() -> None:
    rows = tuple(tuple(float(i == j) for j in range(8)) for i in range(8))
    agent = MinionsAgent(layers=(DenseLayer(weights=rows, biases=(0.0,) * 8),))
    numbers = (3.0, -1.0, 0.5, 0.0, 2.0, -4.0, 2.5)
    seen = torch.tensor(state(*numbers).vector, dtype=torch.float64)
    expected = torch.softmax(seen, dim=-1).tolist()
    assert choice_probabilities(agent, state(*numbers)) == pytest.approx(expected)


def test_logits_whose_powers_overflow_give_their_softmax() -> None:
    biases = (1000.0, 1001.0, -1000.0)
    agent = MinionsAgent(layers=(DenseLayer(weights=((0.0,) * 8,) * 3, biases=biases),))
    expected = torch.softmax(torch.tensor(biases, dtype=torch.float64), dim=-1).tolist()
    assert choice_probabilities(agent, state(*(0.0,) * 7)) == pytest.approx(expected)


@pytest.mark.parametrize("scales", [[1.0] * 7, [0.0] * 8, [-1.0] * 8])
def test_scales_are_eight_positive_numbers(scales: list[float]) -> None:
    body = {**json.loads(AGENT.model_dump_json()), "scales": scales}
    with pytest.raises(ValidationError, match="scales"):
        MinionsAgent.model_validate(body)
