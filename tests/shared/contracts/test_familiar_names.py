"""Names of other libraries, and where they lead here."""

import re

import pytest

from shared.contracts.familiar_names import FAMILIAR, Familiar, familiar
from shared.contracts.field_errors import known_fields, unknown

ALGORITHMS = ("ppo", "sac", "ars", "es")
KNOWN = [
    *dict.fromkeys(name for of in ALGORITHMS for name in known_fields(algorithm=of, policy="nitro"))
]
PATH = re.compile(r"\b(?:hyperparameters|checkpoint|evaluation)\.\w+")


@pytest.mark.parametrize("each", FAMILIAR, ids=lambda each: each.name)
def test_every_field_that_a_name_leads_to_exists(each: Familiar) -> None:
    paths = [each.here] if each.is_field else PATH.findall(each.here)
    assert set(paths) <= set(KNOWN)


def test_names_are_unique_and_none_is_a_field_of_ours_at_the_top() -> None:
    names = [each.name for each in FAMILIAR]
    assert len({*names}) == len(names)
    assert not {*names} & {name for name in KNOWN if "." not in name}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gamma", "it is hyperparameters.discount here"),
        ("hyperparameters.ent_coef", "it is hyperparameters.entropy_coefficient here"),
        ("learning_rate", "it is hyperparameters.learning_rate here"),
        ("max_rounds", "it is stop.max_rounds here"),
        ("n_steps", "it is steps_per_actor here"),
        ("n_delta", "it is hyperparameters.directions here"),
        ("hyperparameters.n_top", "it is hyperparameters.top_directions here"),
        ("delta_std", "it is hyperparameters.exploration_std here"),
        ("alive_bonus_offset", "hyperparameters.reward_offset is the same number without its sign"),
        ("l2_coeff", "it is hyperparameters.weight_decay here"),
        ("callback", "nitro.train(on_round=FUNCTION) calls it after every round"),
        ("replay.batch_size", "it is hyperparameters.minibatch_size here"),
        ("sede", "did you mean seed?"),
    ],
)
def test_an_unknown_field_is_told_what_it_is_here(name: str, told: str) -> None:
    assert unknown(name, KNOWN) == f"no such field; {told}"


def test_another_algorithms_field_is_not_promised() -> None:
    known = known_fields(algorithm="impala", policy="nitro")
    assert "hyperparameters.clip " not in unknown("clip_range", known)


@pytest.mark.parametrize("name", ["Ent-Coef", "ENT_COEF"])
def test_spelling_does_not_matter(name: str) -> None:
    found = familiar(name)
    assert found is not None
    assert found.name == "ent_coef"
