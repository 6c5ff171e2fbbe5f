import json
from pathlib import Path

import pytest

from nitro.errors import EXIT_USAGE, CommandError
from nitro.spec.spec_file import (
    JsonObject,
    build_spec,
    parse_actors,
    parsed_assignments,
)
from shared.contracts.field_errors import known_fields
from shared.contracts.job_spec import JobSpec


def build(
    *assignments: str, options: JsonObject | None = None, file: Path | None = None
) -> JobSpec:
    return build_spec(file=file, options={**(options or {}), **parsed_assignments(assignments)})


def refusal(*assignments: str, options: JsonObject | None = None, file: Path | None = None) -> str:
    with pytest.raises(CommandError) as caught:
        build(*assignments, options=options, file=file)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value)


def test_nothing_given_is_the_paper_setting() -> None:
    assert build() == JobSpec()


def test_assignments_reach_every_level_with_their_json_type() -> None:
    spec = build(
        "env_id=Walker2d-v5",
        "seed=3",
        "actors.max=32",
        "env_kwargs.terminate_when_unhealthy=false",
        "hyperparameters.hidden_sizes=[64, 64]",
        "hyperparameters.learning_rate=3e-4",
        "stop.target_return=null",
    )
    assert spec.env_id == "Walker2d-v5"
    assert spec.seed == 3
    assert spec.actors.max == 32
    assert spec.env_kwargs == {"terminate_when_unhealthy": False}
    assert spec.hyperparameters == {"hidden_sizes": (64, 64), "learning_rate": 3e-4}


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_options_win_over_the_file_and_assignments_over_both(tmp_path: Path, suffix: str) -> None:
    content = {"seed": 1, "steps_per_actor": 64, "stop": {"max_rounds": 3, "budget_usd": 1.5}}
    file = tmp_path / f"job.{suffix}"
    file.write_text(json.dumps(content))
    spec = build("steps_per_actor=16", options={"seed": 2, "steps_per_actor": 32}, file=file)
    assert (spec.seed, spec.steps_per_actor) == (2, 16)
    assert (spec.stop.max_rounds, spec.stop.budget_usd) == (3, 1.5)


def test_every_field_of_a_job_survives_a_file(tmp_path: Path) -> None:
    spec = build("seed=9", "actors.min=2", "scaling.decay=0.9")
    file = tmp_path / "job.json"
    file.write_text(spec.model_dump_json())
    assert build(file=file) == spec


def test_each_wrong_field_is_a_line_of_its_own() -> None:
    lines = refusal("seed=-1", "actors.min=9", "actors.max=8", "stop.budget_usd=0").splitlines()
    assert sorted(line.split(":")[0] for line in lines) == ["actors", "seed", "stop.budget_usd"]
    assert any("min (9) must not exceed max (8)" in line for line in lines)
    assert any(line.startswith("seed:") and "-1" in line for line in lines)


@pytest.mark.parametrize(
    ("assignment", "field", "nearest"),
    [
        ("sede=1", "sede", "seed"),
        ("actors.mix=1", "actors.mix", "actors.min"),
        ("scaling.dekay=0.9", "scaling.dekay", "scaling.decay"),
        (
            "hyperparameters.learning_rte=1",
            "hyperparameters.learning_rte",
            "hyperparameters.learning_rate",
        ),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_known_one(
    assignment: str, field: str, nearest: str
) -> None:
    assert refusal(assignment) == f"{field}: no such field; did you mean {nearest}?"


def test_lists_and_mappings_may_be_yaml() -> None:
    """So that what an error of Gymnasium's spaces suggests can be pasted."""
    spec = build("wrappers=[{name: FlattenObservation}]", "scaling={policy: fixed, num_actors: 9}")
    assert [wrapper.name for wrapper in spec.wrappers] == ["FlattenObservation"]
    assert (spec.scaling.policy, spec.actors.max) == ("fixed", 9)
    assert build("env_kwargs.text=[no list").env_kwargs == {"text": "[no list"}


def test_no_regular_expression_is_shown() -> None:
    for assignment in ("env_id=my Env", "wrappers=[{name: a/b}]", "env_kwargs={a b: 1}"):
        told = refusal(assignment)
        assert "^" not in told
        assert "letters, digits and" in told


def test_rounds_have_a_bound() -> None:
    build("stop.max_rounds=1000000")
    assert "less than or equal to 1000000" in refusal("stop.max_rounds=1000001")


def test_a_wrong_hyperparameter_is_named_with_its_value() -> None:
    assert refusal("hyperparameters.discount=2").startswith("hyperparameters.discount: ")
    assert refusal("hyperparameters.discount=2").endswith("got 2")


@pytest.mark.parametrize("assignment", ["seed", "=1", ""])
def test_an_assignment_without_path_or_value_is_refused(assignment: str) -> None:
    assert refusal(assignment).startswith("--set: must look like path=value")


def test_nothing_can_be_set_inside_a_number() -> None:
    assert "seed is 1" in refusal("seed=1", "seed.deep=2")


@pytest.mark.parametrize(
    "content", ["- a list\n", "seed: [\n", "just text", "", "seed: 2020-01-01"]
)
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    assert refusal(file=file).startswith(f"--spec {file}: ")


def test_a_missing_or_binary_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    assert "No such file" in refusal(file=file)
    file.write_bytes(b"\xff\xfe\x00")
    assert refusal(file=file).startswith(f"--spec {file}: cannot be read")


def test_yaml_that_would_construct_objects_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("env_id: !!python/object/apply:os.getcwd []\n")
    assert "neither YAML nor JSON" in refusal(file=file)


@pytest.mark.parametrize("text", ["3e-4", "3E-4", "3.e-4", "0.0003", "+3e-4"])
def test_a_file_may_write_numbers_with_exponents(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"hyperparameters:\n  learning_rate: {text}\n")
    assert build(file=file).hyperparameters == {"learning_rate": 3e-4}


@pytest.mark.parametrize(
    ("text", "expected"), [("8:64", {"min": 8, "max": 64}), ("4", {"min": 4, "max": 4})]
)
def test_actor_ranges(text: str, expected: JsonObject) -> None:
    assert parse_actors(text) == expected


@pytest.mark.parametrize("text", ["", ":", "a:b", "1:2:3", "1.5:2"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--actors: must be MIN:MAX"):
        parse_actors(text)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"policy": "fixed", "num_actors": 2}, (2, 2)),
        ({"policy": "fixed", "num_actors": 200}, (200, 200)),
        ({"policy": "fixed"}, (16, 16)),
        ({"policy": "schedule", "num_actors": [2, 100, 8]}, (2, 100)),
        ({"policy": "schedule", "num_actors": [16]}, (16, 16)),
        ({"policy": "random"}, (8, 64)),
        ({"policy": "random", "mean_actors": 20.5}, (8, 64)),
        ({"policy": "random", "mean_actors": 7}, (1, 64)),
        ({"policy": "random", "mean_actors": 100.5}, (8, 193)),
        ({"policy": "kungfu"}, (8, 64)),
    ],
)
def test_the_range_of_a_job_that_gives_none_is_what_its_policy_names(
    scaling: JsonObject, expected: tuple[int, int]
) -> None:
    spec = build(options={"scaling": scaling})
    assert (spec.actors.min, spec.actors.max) == expected


@pytest.mark.parametrize("mean", [1.5, 7.0, 8.0, 64.0, 100.5])
def test_draws_around_a_mean_have_room_on_both_sides(mean: float) -> None:
    spec = build(options={"scaling": {"policy": "random", "mean_actors": mean}})
    assert spec.actors.min < mean < spec.actors.max


def test_a_policy_that_is_none_is_refused_as_it_is() -> None:
    assert refusal('scaling={"policy": "fixed", "num_actors": 0}').startswith("scaling.num_actors:")


def test_a_fixed_number_outside_a_given_range_is_refused() -> None:
    fixed: JsonObject = {"policy": "fixed", "num_actors": 2}
    message = refusal(options={"scaling": fixed, "actors": parse_actors("8:64")})
    assert "scaling.num_actors (2)" in message


def test_a_base_holds_where_nothing_else_is_said(tmp_path: Path) -> None:
    base = build("seed=9", "actors.max=12", "scaling.decay=0.9")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"seed": 4}))
    spec = build_spec(file=file, options={"actors.min": 3}, base=base)
    assert spec == base.model_copy(
        update={"seed": 4, "actors": base.actors.model_copy(update={"min": 3})}
    )


def test_a_file_that_names_one_field_of_a_group_leaves_the_others_as_the_base_has_them(
    tmp_path: Path,
) -> None:
    base = build("stop.max_rounds=7", "stop.budget_usd=0.5", "scaling.decay=0.9")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"stop": {"target_return": 100}, "scaling": {"policy": "nitro"}}))
    spec = build_spec(file=file, options={}, base=base)
    assert spec.stop == base.stop.model_copy(update={"target_return": 100.0})
    assert spec.scaling == JobSpec().scaling  # a policy comes whole


@pytest.mark.parametrize("text", ["env_id: 2024-13-45", "seed: !!int foo", "[" * 5000])
def test_a_file_that_yaml_has_no_words_for_is_refused_like_any_other(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert "neither YAML nor JSON" in refusal(file=file)


def test_known_fields_hold_nested_ones() -> None:
    known = {"seed", "actors.min", "scaling.decay", "hyperparameters.clip"}
    assert known <= set(known_fields(algorithm="ppo", policy="nitro"))
    assert known <= set(known_fields(algorithm="trpo", policy="none"))
    others = set(known_fields(algorithm="impala", policy="kungfu"))
    assert "scaling.decay" not in others
    assert "hyperparameters.clip" not in others


def test_what_another_policy_has_is_not_suggested() -> None:
    message = refusal("scaling.window=3", options={"scaling": {"policy": "kungfu"}})
    assert message == "scaling.window: no such field"
