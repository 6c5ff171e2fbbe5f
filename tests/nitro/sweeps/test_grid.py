"""From what is asked to the jobs of a grid."""

from pathlib import Path
from typing import Any

import pytest

from nitro.errors import CommandError
from nitro.sweeps.grid import expand, settings_of
from nitro.sweeps.spec import SweepSpec, sweep_spec
from shared.contracts.stop_rule import NO_CAP_USD

EXAMPLES = Path(__file__).parents[3] / "examples" / "sweeps"


def sweep(**fields: Any) -> SweepSpec:
    return SweepSpec.model_validate({"environments": ["CartPole-v1"], **fields})


def test_a_grid_has_every_combination_and_whole_seeds_come_first() -> None:
    rows = expand(
        sweep(
            environments=["CartPole-v1", "Acrobot-v1"],
            seeds=[4, 2],
            vary={"hyperparameters.learning_rate": [1e-4, 1e-3]},
        )
    )
    assert [row.key for row in rows] == [
        f"{env_id}/learning_rate={rate}/{seed}"
        for seed in (4, 2)
        for env_id in ("CartPole-v1", "Acrobot-v1")
        for rate in ("0.0001", "0.001")
    ]
    assert [row.spec.seed for row in rows[:4]] == [4] * 4
    assert rows[1].spec.hyperparameters["learning_rate"] == 1e-3


def test_named_settings_are_combined_with_what_is_varied() -> None:
    asked = sweep(
        settings={"ppo": {"algorithm": "ppo"}, "impact": {"algorithm": "impact"}},
        vary={"preset": ["standard", "paper"]},
    )
    assert [*settings_of(asked)] == [
        "ppo, preset=standard",
        "ppo, preset=paper",
        "impact, preset=standard",
        "impact, preset=paper",
    ]


def test_jobs_are_completed_as_those_of_nitro_train_and_share_a_tag() -> None:
    (row,) = expand(sweep(seeds=[1], total_steps=50_000, job={"tags": ["mine"]}))
    assert row.spec.preset == "standard"
    assert row.spec.stop.max_rounds == 25
    assert row.spec.tags == (
        "mine",
        f"sweep:{sweep(seeds=[1], total_steps=50_000, job={'tags': ['mine']}).known_name}",
    )
    assert row.spec.stop.budget_usd == NO_CAP_USD
    assert row.end_steps is None


def test_where_actors_decide_the_steps_the_sweep_ends_the_job() -> None:
    (row,) = expand(sweep(seeds=[1], total_steps=50_000, job={"preset": "paper"}))
    assert row.end_steps == 50_000
    fewest = row.spec.actors.min * row.spec.steps_per_actor
    assert (row.spec.stop.max_rounds - 1) * fewest < 50_000 <= row.spec.stop.max_rounds * fewest
    assert row.spec.evaluation.every_rounds == 1


def test_short_forms_are_those_of_the_command_line() -> None:
    rows = expand(sweep(seeds=[1], vary={"scaling": ["fixed:4", "kungfu"]}, job={"actors": "2:8"}))
    assert [row.spec.scaling.policy for row in rows] == ["fixed", "kungfu"]
    assert (rows[1].spec.actors.min, rows[1].spec.actors.max) == (2, 8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vary": {"hyperparameters.nothing": [1]}}, "CartPole-v1, nothing=1: .*nothing"),
        ({"vary": {"preset": ["paper", "paper"]}}, "given twice"),
        ({"job": {"stop.budget_usd": 1}}, "the sweep's budget_usd"),
        ({"job": {"stop": {"budget_usd": 1}}}, "the sweep's budget_usd"),
        ({"vary": {"stop": [{"budget_usd": 1}]}}, "the sweep's budget_usd"),
        ({"seeds": "1000", "vary": {"steps_per_actor": [*range(1, 12)]}}, "at most 10,000 jobs"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        expand(sweep(**fields))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_sweeps_of_a_million_steps(path: Path) -> None:
    rows = expand(sweep_spec(path, {}))
    assert {row.seed for row in rows} >= {1, 2, 3}
    for row in rows:
        per_round = row.spec.actors.min * row.spec.steps_of(row.spec.actors.min)
        assert 0 <= row.spec.stop.max_rounds * per_round - 1_000_000 < per_round
