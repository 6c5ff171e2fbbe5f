"""What every message has in common: closed, frozen, and names that cannot escape a path."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.job_spec import JobSpec
from shared.message import Count, Identifier, JobId, Message, PositiveFloat


class _Example(Message):
    name: Identifier
    """What it is called."""
    count: Count = 0
    share: PositiveFloat = 1.0


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="colour"):
        _Example.model_validate({"name": "a", "colour": "blue"})


def test_what_is_read_back_may_have_fields_of_a_newer_version() -> None:
    newer = json.loads(JobSpec(hyperparameters={"learning_rate": 0.1}).model_dump_json())
    newer["scaling"]["colour"] = newer["hyperparameters"]["colour"] = newer["colour"] = 1
    assert JobSpec.read(json.dumps(newer)).scaling == JobSpec().scaling
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(newer)
    named = {error["loc"] for error in refused.value.errors()}
    assert {("colour",), ("scaling", "nitro", "colour")} <= named


def test_a_message_cannot_be_changed_and_is_equal_by_value() -> None:
    one = _Example(name="a")
    with pytest.raises(ValidationError, match="frozen"):
        one.name = "b"  # type: ignore[misc]
    assert one == _Example(name="a")
    assert _Example.model_validate_json(one.model_dump_json()) == one


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 1.0),
        ("count", "1"),
        ("count", True),
        ("count", -1),
        ("share", 0.0),
        ("share", float("nan")),
        ("share", float("inf")),
    ],
)
def test_numbers_are_taken_at_their_word(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        _Example.model_validate({"name": "a", field: value})


@pytest.mark.parametrize(
    "job_id", ["", "A", "-a", "a/b", "..", "a:b", "a}b", "a\n", "a b", "é", "a" * 64]
)
def test_a_job_id_holds_no_separator(job_id: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(JobId).validate_python(job_id)


@pytest.mark.parametrize("identifier", ["", ".hidden", "a/b", "a\n", "a b", "a" * 129])
def test_an_identifier_is_no_path(identifier: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Identifier).validate_python(identifier)
