"""What every message has in common: closed, frozen, and names that cannot escape a path."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.contracts import billing, job_spec, jobs, leases, rollouts, rounds, scaling_spec
from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Count, Identifier, JobId, Message, PositiveFloat


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
    assert {("colour",), ("scaling", "colour")} <= named


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
    ("kind", "texts"),
    [
        (JobId, ["", "A", "-a", "a/b", "..", "a:b", "a}b", "a\n", "a b", "é", "a" * 64]),
        (Identifier, ["", ".hidden", "a/b", "a\n", "a b", "a" * 129]),
    ],
)
def test_a_name_holds_no_separator_and_is_no_path(kind: Any, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValidationError):
            pytest.fail(f"took {TypeAdapter(kind).validate_python(text)!r}")


def numbers(message: type[Message]) -> Iterator[tuple[str, TypeAdapter[Any]]]:
    """Return the fields of a message that are numbers, and what validates them."""
    for name, field in message.model_fields.items():
        kind: Any = field.annotation
        adapter = TypeAdapter(Annotated[kind, *field.metadata] if field.metadata else kind)
        schema = adapter.json_schema()
        kinds = {schema.get("type"), *(part.get("type") for part in schema.get("anyOf", []))}
        if kinds & {"integer", "number"} and "boolean" not in kinds:
            yield name, adapter


def test_neither_a_truth_value_nor_a_text_is_a_number_in_any_message() -> None:
    checked = [
        (kind.__name__, name, adapter)
        for module in (billing, job_spec, jobs, leases, rollouts, rounds, scaling_spec)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Message)
        for name, adapter in numbers(kind)
    ]
    some = {("LeaseRequest", "wait_s"), ("JobSpec", "seed"), ("NitroScaling", "decay")}
    assert some <= {found[:2] for found in checked}
    for message, name, adapter in checked:
        for wrong in ("true", '"1"'):
            with pytest.raises(ValidationError):
                pytest.fail(f"{message}.{name} took {adapter.validate_json(wrong)!r}")
