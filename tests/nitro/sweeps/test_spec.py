"""What a sweep may be asked for, as options and as a file."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.sweeps.asking import parse_vary
from nitro.sweeps.spec import sweep_spec


def test_varied_values_are_numbers_texts_or_lists() -> None:
    assert parse_vary("a.b=1e-4,3") == ("a.b", [1e-4, 3])
    assert parse_vary("preset=standard,paper") == ("preset", ["standard", "paper"])
    assert parse_vary("x=[64,64],[8]") == ("x", [[64, 64], [8]])
    with pytest.raises(CommandError, match="--vary: must look like"):
        parse_vary("preset")


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "environments: [Hopper-v4]\nseeds: 5\ntotal_steps: 1e6\nbudget_usd: 2\n"
        "settings:\n  ppo: {algorithm: ppo}\njob: {preset: standard}\n"
    )
    spec = sweep_spec(file, {"seeds": "2", "job": {"preset": "paper"}})
    assert spec.environments == ("Hopper-v4",)
    assert (spec.seeds, spec.total_steps, spec.budget_usd) == ((1, 2), 1_000_000, 2.0)
    assert spec.job == {"preset": "paper"}


def test_the_name_follows_from_everything_but_the_budget() -> None:
    asked: dict[str, JsonValue] = {"environments": ["CartPole-v1", "Acrobot-v1"], "seeds": "2"}
    name = sweep_spec(None, asked).known_name
    assert name.startswith("cartpole-v1-and-1-")
    assert sweep_spec(None, {**asked, "budget_usd": 2.0}).known_name == name
    assert sweep_spec(None, {**asked, "seeds": "3"}).known_name != name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "ENV: name an environment"),
        ({"environments": ["A"], "seed": 3}, "seed"),
        ({"environments": ["A", "A"]}, "named twice"),
        ({"environments": ["A"], "vary": {"seed": [1, 2]}}, "use `environments` and `seeds`"),
        ({"environments": ["A"], "vary": {"preset": []}}, "vary.preset"),
        ({"environments": ["A"], "seeds": "5-1"}, "seeds: .*must look like"),
        ({"environments": ["A"], "total_steps": "few"}, "whole number"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        sweep_spec(None, options)
