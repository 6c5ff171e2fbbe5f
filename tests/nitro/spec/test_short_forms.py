"""`--env NAME[=VALUE]`."""

import pytest

from nitro.errors import CommandError
from nitro.spec.short_forms import own_variables


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
