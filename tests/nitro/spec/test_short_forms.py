"""Short forms of fields, and `--env NAME[=VALUE]`."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.spec.short_forms import own_variables, written_out


def test_short_forms_are_written_out() -> None:
    short: dict[str, JsonValue] = {"actors": "2:8", "tags": "a,b", "scaling": "fixed:3"}
    short |= {"hyperparameters.hidden_sizes": "8,4", "seed": 1}
    assert written_out(short, Path("runs")) == {
        "actors": {"min": 2, "max": 8},
        "tags": ["a", "b"],
        "hyperparameters.hidden_sizes": [8, 4],
        "seed": 1,
        "scaling": {"policy": "fixed", "num_actors": 3},
    }


def test_a_name_alone_has_the_value_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_MODE", "a=b")
    assert own_variables(["SIM_MODE", "SIM_LEVEL=3", "SIM_EMPTY=", "SIM_LEVEL=x=y"]) == {
        "env_variables.SIM_MODE": "a=b",
        "env_variables.SIM_LEVEL": "x=y",
        "env_variables.SIM_EMPTY": "",
    }


def test_one_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIM_MODE", raising=False)
    with pytest.raises(CommandError, match="--env: SIM_MODE is not set here; give SIM_MODE=VALUE"):
        own_variables(["SIM_MODE"])
