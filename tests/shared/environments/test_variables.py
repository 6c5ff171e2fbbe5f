"""Variables of the process: those a job brings, and those a simulator reads."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments import variables
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.packages import import_environment_packages
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.variables import set_variables, variable_differences

_SOURCE = """
import os, subprocess
import gymnasium, numpy as np

GRAVITY = os.environ.get("SIM_AT_IMPORT", "9.8")

class Reading(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.mode = os.getenv("SIM_MODE")
        dict(os.environ), {**os.environ}, os.environ.copy()
        os.path.expanduser("~/x"), os.environ.get("HOME"), os.environ.get("SIM_TOKEN")
        subprocess.run(["true"], check=True)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        os.environ.setdefault("SIM_LEVEL", "3")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        hard = "SIM_HARD" in os.environ
        return np.zeros(2, np.float32), float(hard), False, False, {}

gymnasium.register("Reading-v0", entry_point=Reading)
"""


@pytest.fixture(autouse=True)
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "reading_envs.py").write_text(_SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SIM_TOKEN", "secret")
    monkeypatch.setenv("SIM_MODE", "hard")
    monkeypatch.delenv("SIM_LEVEL", raising=False)
    importlib.invalidate_caches()
    import_environment_packages(["reading_envs"])
    yield
    set_variables({})
    variables.AT_IMPORT.clear()
    del sys.modules["reading_envs"], gymnasium.registry["Reading-v0"]


def test_what_a_simulator_reads_is_described_and_nothing_else() -> None:
    assert describe(EnvironmentRef(env_id="Reading-v0")).variables == {
        "SIM_AT_IMPORT": None,
        "SIM_MODE": "hard",
        "SIM_LEVEL": None,  # as it found it
        "SIM_HARD": None,
    }
    assert type(os.environ).__name__ == "_Environ"  # again


def test_environments_that_read_nothing_have_none() -> None:
    variables.AT_IMPORT.clear()
    assert describe(EnvironmentRef(env_id="CartPole-v1")).variables == {}


def test_a_jobs_own_variables_are_set_while_it_runs_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SIM_HARD", raising=False)
    ref = EnvironmentRef(env_id="Reading-v0", env_variables={"SIM_MODE": "easy", "SIM_HARD": "1"})
    found = describe(ref).variables
    assert (found["SIM_MODE"], found["SIM_HARD"]) == ("easy", "1")
    env = make_environment(ref)
    env.reset(seed=0)
    assert env.step(0)[1] == 1.0
    make_environment(EnvironmentRef(env_id="Reading-v0"))
    assert os.environ["SIM_MODE"] == "hard"
    assert "SIM_HARD" not in os.environ


def test_what_is_read_too_early_for_a_job_is_refused() -> None:
    ref = EnvironmentRef(env_id="Reading-v0", env_variables={"SIM_AT_IMPORT": "1.6"})
    with pytest.raises(UnsupportedEnvironment, match=r"env_variables\.SIM_AT_IMPORT: .* imported"):
        describe(ref)


def test_differences_name_the_variables_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIM_A", "here")
    monkeypatch.delenv("SIM_B", raising=False)
    read = {"SIM_A": None, "SIM_B": "there", "SIM_C": "own"}
    assert variable_differences(read, {"SIM_C": "own"}) == (
        "SIM_A is set here, but not where actors run",
        "SIM_B is not set here, but where actors run",
    )
    assert variable_differences({"SIM_A": "there"}, {}) == (
        "SIM_A has another value here than where actors run",
    )
    monkeypatch.delenv("SIM_A")
    assert variable_differences(read, {"SIM_B": "there", "SIM_C": "own"}) == ()
