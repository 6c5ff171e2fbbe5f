"""A script is imported for what it defines: neither what it guards nor what it trains is run."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from shared.environments.packages import (
    EnvironmentPackageError,
    absolute_name,
    import_environment_packages,
    maker_env_id,
    package_names,
)

_SCRIPT = """
from dataclasses import dataclass
import beside
import nitro

@dataclass
class Maze:
    size: int = beside.SIZE

if __name__ == "__main__":
    raise RuntimeError("guarded")
{body}
"""


def _script(folder: Path, body: str) -> str:
    folder.mkdir()
    (folder / "beside.py").write_text("SIZE = 7")
    (folder / "maze 1.py").write_text(_SCRIPT.format(body=body))
    sys.modules.pop("beside", None)
    (name,) = package_names(absolute_name(f"{folder}/maze 1.py:Maze"))
    return name


@pytest.mark.parametrize("body", ["", "nitro.train(Maze)\nraise RuntimeError('trained')"])
def test_a_script_brings_its_environment(tmp_path: Path, body: str) -> None:
    name = _script(tmp_path / "my mazes", body)
    import_environment_packages([name])
    env_id = maker_env_id(name)
    assert env_id == "own/maze-1.Maze"
    maker: Any = gymnasium.registry[env_id].entry_point
    assert maker(3).size == 3
    assert maker().size == 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import argparse; argparse.ArgumentParser().exit(3)", r"SystemExit\(3\).*__main__"),
        ("del Maze; nitro.train('CartPole-v1')", "defines no Maze at its top level.*__main__"),
        ("raise ValueError('no licence')", "no licence"),
    ],
)
def test_what_goes_wrong_in_a_script_is_told(tmp_path: Path, body: str, message: str) -> None:
    name = _script(tmp_path / "mazes", body)
    with pytest.raises(EnvironmentPackageError, match=message):
        import_environment_packages([name])


def test_a_module_that_trains_when_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trains_at_once.py").write_text("import nitro\nnitro.train('CartPole-v1')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentPackageError, match="trains when it is imported.*__main__"):
        import_environment_packages(["trains_at_once:Maze"])
