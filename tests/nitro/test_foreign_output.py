"""Environments that print, under the real command line in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nitro.checkpoints import LEFT, stubborn_policy, write_checkpoint

_LOUD = """
import atexit, logging, os, subprocess, sys
import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

print("loud: imported")
os.write(1, b"loud: a library's greeting\\n")
logging.basicConfig(stream=sys.stdout)
atexit.register(print, "loud: the end")

class Loud(CartPoleEnv):
    def step(self, action):
        print("loud: a step")
        os.write(1, b"loud: a library's step\\n")
        logging.warning("loud: a logged step")
        if not hasattr(self, "said"):
            self.said = subprocess.run(["echo", "loud: another process"])
        return super().step(action)

    def get_state(self):
        return {"state": np.array(self.state, np.float64)}

    def set_state(self, state):
        self.state, self.steps_beyond_terminated = state["state"], None

gymnasium.register("Loud-v0", entry_point=Loud, max_episode_steps=20)
"""


def nitro(folder: Path, *arguments: str) -> tuple[str, str]:
    """Return what a command wrote to standard output and to standard error."""
    (folder / "loud_envs.py").write_text(_LOUD)
    done = subprocess.run(
        [sys.executable, "-m", "nitro.cli.main", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "NITRO_ENVIRONMENT_PACKAGES": "loud_envs",
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    for line in ("a step", "a library's step", "a logged step", "another process", "the end"):
        assert f"loud: {line}" in done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("check-env", "Loud-v0", "--steps", "50", "--json"), "why_not"),
        (("plan", "Loud-v0", "--total-steps", "10_000", "--json"), "ways"),
        (("evaluate", "RUN", "--episodes", "2", "--json"), "mean_return"),
    ],
)
def test_what_an_environment_prints_is_no_part_of_the_json(
    arguments: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    run = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT), env_id="Loud-v0")
    stdout, _ = nitro(tmp_path, *(str(run) if word == "RUN" else word for word in arguments))
    answer: dict[str, Any] = json.loads(stdout)
    assert key in answer


def test_nor_does_it_run_through_a_table(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT), env_id="Loud-v0")
    stdout, _ = nitro(tmp_path, "evaluate", str(run), "--episodes", "2")
    assert "loud" not in stdout.replace("Loud-v0", "")
    assert "± " in stdout


def test_a_reader_that_has_enough_costs_no_traceback(tmp_path: Path) -> None:
    program = f"{sys.executable} -m nitro.cli.main fields | head -1"
    done = subprocess.run(
        ["bash", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
