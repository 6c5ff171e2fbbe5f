"""The paper's preset holds the paper's numbers, and an override that is none is refused."""

import pytest
from pydantic import ValidationError

from shared.hyperparameters import PpoHyperparameters, resolve


def test_the_paper_preset_is_table_1_filled_up_with_rllibs_defaults() -> None:
    table_1 = {
        "learning_rate": 5e-5,
        "discount": 0.99,
        "clip": 0.3,
        "kl_coefficient": 0.2,
        "kl_target": 0.01,
        "entropy_coefficient": 0.0,
        "value_coefficient": 1.0,
    }
    rllib = {
        "gae_lambda": 1.0,
        "value_clip": 10.0,
        "num_epochs": 30,
        "minibatch_size": 128,
        "log_std": "state_dependent",
    }
    section_8_1 = {"hidden_sizes": (256, 256)}
    ours = {"kl_coefficient_max": 100.0}
    assert resolve("ppo", "paper", {}).model_dump() == table_1 | rllib | section_8_1 | ours


def test_every_default_says_where_it_comes_from() -> None:
    for name, field in PpoHyperparameters.model_fields.items():
        assert field.description, name
        sources = ("Table 1.", "RLlib", "Section 8.1.")
        assert any(source in field.description for source in sources), name


def test_an_override_changes_its_field_only() -> None:
    resolved = resolve("ppo", "paper", {"clip": 0.2, "hidden_sizes": (64, 64)})
    usual = resolve("ppo", "paper", {})
    assert resolved == usual.model_copy(update={"clip": 0.2, "hidden_sizes": (64, 64)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clipp", 0.2),
        ("clip", 0.0),
        ("clip", float("nan")),
        ("discount", 1.01),
        ("learning_rate", float("inf")),
        ("num_epochs", 0),
        ("num_epochs", 2.5),
        ("hidden_sizes", (0,)),
        ("log_std", "none"),
    ],
)
def test_an_impossible_override_is_refused_by_name(name: str, value: float | str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve("ppo", "paper", {name: value})
    assert caught.value.errors()[0]["loc"][0] == name


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'trpo'; known: ppo/paper"):
        resolve("trpo", "paper", {})
