import os
import sys
from pathlib import Path

import gymnasium
import pytest

from nitro.errors import CommandError
from nitro.local.own_environments import actor_variables, own_packages
from shared.environments.packages import maker_env_id


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NITRO_ENVIRONMENT_PACKAGES", "NITRO_STEP_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    source = "import gymnasium\nNUMBER = 7\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    for name in ("one_of_mine", "two_of_mine"):
        (tmp_path / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)  # of the test before, in another folder
    (tmp_path / "broken_of_mine.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)


def test_the_option_wins_over_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_packages(None) == ()
    monkeypatch.setenv("NITRO_ENVIRONMENT_PACKAGES", "one_of_mine, two_of_mine")
    assert own_packages(None) == ("one_of_mine", "two_of_mine")
    assert own_packages(["two_of_mine"]) == ("two_of_mine",)


def test_actors_are_told_in_their_own_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert actor_variables(None) == {}
    monkeypatch.setenv("NITRO_STEP_TIMEOUT_S", "2.5")
    variables = actor_variables(["one_of_mine", "two_of_mine"])
    # They find what was found here; our own packages come first all the same.
    first, *_, last = variables.pop("PYTHONPATH").split(os.pathsep)
    assert (Path(first) / "nitro").is_dir()
    assert Path(last) == tmp_path
    assert variables == {
        "NITRO_ENVIRONMENT_PACKAGES": "one_of_mine,two_of_mine",
        "NITRO_FOLDER": str(Path.cwd()),
        "NITRO_STEP_TIMEOUT_S": "2.5",
    }


def test_what_makes_an_environment_is_registered_by_its_name() -> None:
    assert own_packages(["one_of_mine:make"]) == ("one_of_mine:make",)
    own_packages(["one_of_mine:make"])  # once more: a process may train twice
    assert gymnasium.make(maker_env_id("one_of_mine:make")).unwrapped.spec is not None
    with pytest.raises(CommandError, match="one_of_mine:NUMBER is no function or class"):
        own_packages(["one_of_mine:NUMBER"])


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


def test_secrets_that_are_named_reach_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_ACTOR_VARIABLES", "SIM_LICENSE_KEY, SIM_TOKEN")
    monkeypatch.setenv("SIM_LICENSE_KEY", "1234")
    monkeypatch.delenv("SIM_TOKEN", raising=False)
    assert actor_variables(None) == {"SIM_LICENSE_KEY": "1234"}


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_STEP_TIMEOUT_S", "0")
    with pytest.raises(CommandError, match="NITRO_STEP_TIMEOUT_S: Input should be greater than 0"):
        actor_variables(None)
