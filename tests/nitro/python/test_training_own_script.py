"""An environment that is written in a script or notebook: trained there, used from the shell."""

import subprocess
import sys
from pathlib import Path

import pytest

from nitro.runs.reading import read_run

_SCRIPT = """
import gymnasium as gym
import numpy as np
import nitro
class Walk(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space, action_space = gym.spaces.Box(-20, 20, (1,)), gym.spaces.Discrete(2)
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def render(self): return np.full((64, 64, 3), 100 + self.x, np.uint8)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed); self.x, self.t = 0, 0; return np.zeros(1, "f4"), {}
    def step(self, action):
        self.x += 2 * action - 1; self.t += 1
        return np.array([self.x], "f4"), self.x, False, self.t >= 20, {}
print(nitro.train(Walk, rounds=1, seed=1, samples_per_round=256).evaluate(episodes=2).returns)
"""
_CELLS = """
import linecache, sys
CELLS = [
    "import gymnasium as gym\\nimport numpy as np\\nLIMIT = 12",
    "def see(x):\\n    return np.array([x], np.float32)",
    '''class Walk(gym.Env):
    observation_space, action_space = gym.spaces.Box(-20, 20, (1,)), gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.t = 0
        return see(0), {}
    def step(self, action):
        self.x, self.t = self.x + 2 * action - 1, self.t + 1
        return see(self.x), self.x, False, self.t >= LIMIT, {}
''',
    "import nitro\\nrun = nitro.train(Walk, rounds=1, seed=1, samples_per_round=256)",
    "print(run.evaluate(episodes=2).lengths)",
]
for number, cell in enumerate(CELLS):  # as a notebook has them: each a file for tracebacks
    name = f"<cell {number}>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    exec(compile(cell, name, "exec"), sys.modules["__main__"].__dict__)
"""
_REGISTERED = """
import gymnasium, nitro
def train():
    return nitro.train("{id}", rounds=1, seed=1, samples_per_round=256)
if __name__ == "__main__":
    gymnasium.register("{id}", entry_point={entry}, max_episode_steps=9)
    print(train().job.environment.max_episode_steps)
"""


def _typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Return what comes of a command that is typed in a folder."""
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _nitro(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The program as installed, whose module path does not have the present folder.
    call = "from nitro.cli.main import main; import sys; sys.path.remove(''); main()"
    return _typed(folder, "-c", call, *words)


def _run_in(folder: Path) -> Path:
    (path,) = folder.glob("runs/*/job.json")
    return path.parent


def test_a_script_with_its_own_environment_is_used_from_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "walk.py"
    script.write_text(_SCRIPT)
    assert _typed(tmp_path, "walk.py").stdout.startswith("[")
    run = _run_in(tmp_path)

    filmed = _nitro(tmp_path, "evaluate", run.name, "--video", "--json")
    assert '"mean_length":20.0' in filmed.stdout, filmed.stderr
    assert any((run / "videos").iterdir())

    job, resume = run / "job.json", ("train", "--resume", run.name, "--rounds", "2")
    before = job.read_bytes()
    script.write_text(_SCRIPT.replace("self.x, self.t = 0, 0", "raise OSError('no licence')"))
    refused = _nitro(tmp_path, *resume)
    assert refused.returncode != 0
    assert "no licence" in refused.stdout + refused.stderr
    script.write_text(_SCRIPT.replace("Discrete(2)", "Discrete(3)"))
    refused = _nitro(tmp_path, *resume)
    assert "its actions were" in refused.stdout + refused.stderr
    assert job.read_bytes() == before

    script.write_text(_SCRIPT)
    resumed = _nitro(tmp_path, *resume)
    assert resumed.returncode == 0, resumed.stderr
    assert read_run(run).job.progress.rounds == 2
    assert "film of the agent" in resumed.stdout


def test_a_notebook_with_its_own_environment_trains(tmp_path: Path) -> None:
    trained = _typed(tmp_path, "-c", _CELLS)
    assert "[12, 12]" in trained.stdout, trained.stderr
    evaluated = _nitro(tmp_path, "evaluate", _run_in(tmp_path).name, "--episodes", "2")
    assert "12.0 steps" in evaluated.stdout, evaluated.stderr


def test_what_a_script_registers_trains(tmp_path: Path) -> None:
    (tmp_path / "poles.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\nclass Pole(CartPoleEnv): ..."
    )
    (tmp_path / "pole.py").write_text(_REGISTERED.format(id="Pole-v0", entry="'poles:Pole'"))
    assert _typed(tmp_path, "pole.py").stdout.strip().endswith("9")


@pytest.mark.parametrize("env_id", ["Reecher-v5"])
def test_what_only_the_script_knows_is_said_to_be_unknown_to_actors(
    tmp_path: Path, env_id: str
) -> None:
    entry = "lambda: gymnasium.make('CartPole-v1')"
    (tmp_path / "pole.py").write_text(_REGISTERED.format(id=env_id, entry=entry))
    refused = _typed(tmp_path, "pole.py")
    assert "registered in this process, but not where the actors run" in refused.stderr
    assert "did you mean" not in refused.stderr.splitlines()[-1]
