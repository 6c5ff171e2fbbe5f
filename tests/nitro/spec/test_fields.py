"""`nitro fields`: complete, and its limits are those a job is held to."""

import re
from collections.abc import Iterator

import pytest
from pydantic import JsonValue, ValidationError

from nitro.errors import CommandError
from nitro.spec.fields import FieldRow, field_rows, field_table
from shared.contracts.checkpoint_rules import InitialPolicy
from shared.contracts.job_spec import JobSpec
from tests.nitro.synthetic_run import rendered

ROWS = field_rows()
GROUPS = (
    "learner_functions",
    "learner_task",
    "actors",
    "stop",
    "episodes",
    "evaluation",
    "checkpoint",
    "detector",
)


def leaves() -> Iterator[tuple[str, JsonValue]]:
    for name, value in JobSpec().model_dump(mode="json").items():
        if name in GROUPS:
            yield from ((f"{name}.{inner}", default) for inner, default in value.items())
        elif name == "init_from":  # unset as a whole
            yield from ((f"{name}.{inner}", None) for inner in InitialPolicy.model_fields)
        else:
            yield name, value["policy"] if name == "scaling" else value


def nested(row: FieldRow, value: JsonValue) -> dict[str, JsonValue]:
    group, _, name = row.name.rpartition(".")
    return {group: {name: value}} if group else {name: value}


def test_every_field_is_shown_once_with_its_default() -> None:
    assert [(row.name, row.default) for row in ROWS] == list(leaves())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_field_has_a_meaning_and_says_what_it_may_be(row: FieldRow) -> None:
    assert row.meaning.endswith(".")
    assert row.allowed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_lies_outside_the_limits_is_refused(row: FieldRow) -> None:
    outside: list[JsonValue] = [[{}]]
    if lowest := re.search(r"from (\d+)", row.allowed):
        outside.append(int(lowest[1]) - 1)
    if largest := re.search(r"to (\d+)", row.allowed):
        outside.append(int(largest[1]) + 1)
    if above := re.search(r"above (\d+)", row.allowed):
        outside.append(float(above[1]))
    if not row.allowed.endswith("unset"):
        outside.append(None)
    for value in outside:
        with pytest.raises(ValidationError):
            JobSpec.model_validate(nested(row, value))


def test_every_limit_of_the_schema_is_told() -> None:
    allowed = {row.name: row.allowed for row in ROWS}
    assert allowed["seed"] == "integer from 0 to 2147483647"
    assert allowed["stop.max_rounds"] == "integer from 1 to 1000000"
    assert allowed["stop.max_wall_s"] == "number above 0, or unset"
    assert allowed["stop.target_return"] == "number, or unset"
    assert allowed["detector.sampling"] == "proportional, even"
    assert "reward_window" in allowed["scaling"]


def test_one_group_or_one_field_can_be_asked_for() -> None:
    assert [row.name for row in field_rows("checkpoint")] == ["checkpoint.keep"]
    assert [row.name for row in field_rows("seed")] == ["seed"]
    assert [row.name for row in field_rows("stop.max_rounds")] == ["stop.max_rounds"]


def test_an_unknown_group_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match="GROUP: must be one of env_id, .*detector, got 'env'"):
        field_rows("env")


def test_the_table_names_every_field_however_narrow() -> None:
    text = rendered(field_table(ROWS), width=80)
    assert [row.name for row in ROWS if row.name not in text] == []
