from pathlib import Path

import pytest

from nitro.errors import CommandError
from nitro.local.own_environments import actor_variables, own_packages


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NITRO_ENVIRONMENT_PACKAGES", "NITRO_STEP_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    for name in ("one_of_mine", "two_of_mine"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "broken_of_mine.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)


def test_the_option_wins_over_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_packages(None) == ()
    monkeypatch.setenv("NITRO_ENVIRONMENT_PACKAGES", "one_of_mine, two_of_mine")
    assert own_packages(None) == ("one_of_mine", "two_of_mine")
    assert own_packages(["two_of_mine"]) == ("two_of_mine",)


def test_actors_are_told_in_their_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert actor_variables(None) == {}
    monkeypatch.setenv("NITRO_STEP_TIMEOUT_S", "2.5")
    assert actor_variables(["one_of_mine", "two_of_mine"]) == {
        "NITRO_ENVIRONMENT_PACKAGES": "one_of_mine,two_of_mine",
        "NITRO_STEP_TIMEOUT_S": "2.5",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none_of_mine", "'none_of_mine' .* cannot be imported: ModuleNotFoundError.*pip install"),
        ("broken_of_mine", r"cannot be imported: RuntimeError\('no licence'\)"),
        ("os;system", "'os;system' is no name of a Python package"),
    ],
)
def test_what_cannot_be_imported_is_refused_before_anything_starts(name: str, message: str) -> None:
    with pytest.raises(CommandError, match=f"--environment-package: .*{message}"):
        own_packages([name])


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_STEP_TIMEOUT_S", "0")
    with pytest.raises(CommandError, match="NITRO_STEP_TIMEOUT_S: Input should be greater than 0"):
        actor_variables(None)
