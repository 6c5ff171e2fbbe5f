import pytest

from containers.requirements import requirements

PROJECT = {
    "dependencies": ["everybody>=1"],
    "optional-dependencies": {"actor": ["simulator<2", "arrays"], "scaler": ["web"]},
}


def test_a_deployable_needs_what_everybody_needs_and_its_extra() -> None:
    assert requirements(PROJECT, "actor") == ["everybody>=1", "simulator<2", "arrays"]


def test_an_unknown_extra_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="extra 'actr' is unknown; known: actor, scaler"):
        requirements(PROJECT, "actr")
