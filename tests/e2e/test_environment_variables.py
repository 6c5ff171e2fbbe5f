"""A simulator that reads a variable trains and is evaluated on the same thing, or one is told."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from typer.testing import CliRunner

import nitro
from nitro.cli.main import app

_SOURCE = """
import os
import gymnasium, numpy as np

class Priced(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.reward = float(os.environ.get("SIM_PRICE", "-300"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.reward, True, False, {}

gymnasium.register("Priced-v0", entry_point=Priced)
"""
_SMALL = (
    *("--rounds", "1", "--actors", "2", "--scaling", "fixed:2", "--steps-per-actor", "64"),
    *("--eval-every", "0", "--json"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "priced_envs.py").write_text(_SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NITRO_ENVIRONMENT_PACKAGES", "priced_envs")
    yield tmp_path
    gymnasium.registry.pop("Priced-v0", None)
    sys.modules.pop("priced_envs", None)


def test_training_and_evaluation_read_the_same_and_a_difference_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        found: dict[str, object] = json.loads(result.stdout)
        return found

    monkeypatch.setenv("SIM_PRICE", "-3")
    job_id = str(run("train", "Priced-v0", *_SMALL)["job_id"])
    trained = nitro.load(job_id)
    assert trained.returns == [-3.0]  # not -300
    here = run("evaluate", job_id, "--json")
    assert (here["mean_return"], here["differences"]) == (-3.0, [])
    monkeypatch.delenv("SIM_PRICE")
    elsewhere = run("evaluate", job_id, "--json")
    difference = "SIM_PRICE is not set here, but where actors run"
    assert (elsewhere["mean_return"], elsewhere["differences"]) == (-300.0, [difference])
    with pytest.warns(UserWarning, match=difference):
        trained.environment()

    own_id = str(run("train", "Priced-v0", "--env", "SIM_PRICE=-7", *_SMALL)["job_id"])
    own = nitro.load(own_id)
    assert own.returns == [-7.0]
    assert own.evaluate(episodes=2).mean_return == -7.0
    own.environment()  # warns of nothing
