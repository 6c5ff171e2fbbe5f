"""Which learner a job has, and why."""

from typing import get_args

import pytest

from shared.contracts.learner_kind import LearnerChoice, LearnerKind, learner_kind, why_learner


@pytest.mark.parametrize(
    ("asked", "dense", "convolutional"),
    [
        ("auto", "cpu", "gpu"),
        ("gpu", "gpu", "gpu"),
        ("cpu", "cpu", "cpu"),
        # A job of before it could say.
        (None, "gpu", "gpu"),
    ],
)
def test_only_auto_looks_at_the_network(
    asked: LearnerChoice | None, dense: LearnerKind, convolutional: LearnerKind
) -> None:
    assert learner_kind(asked, images=False) == dense
    assert learner_kind(asked, images=True) == convolutional


def test_the_reason_names_the_network_where_that_decided() -> None:
    assert "dense" in why_learner("auto", "cpu")
    assert "convolutional" in why_learner("auto", "gpu")
    for kind in get_args(LearnerKind):
        assert "job or its preset" in why_learner(kind, kind)
