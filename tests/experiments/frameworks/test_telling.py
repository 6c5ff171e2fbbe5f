"""The lines of a framework's script, from a real environment and an agent that is known."""

import json
import os
import subprocess
import sys
from pathlib import Path

from experiments.frameworks.cells import FrameworkEvaluation

ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
from experiments.frameworks.telling import Task, tell

class Still:
    done = 0
    def learn(self, steps):
        print("a library talks")
        self.done += steps
        return self.done
    def act(self, observation):
        assert observation.dtype == "float32"
        return 0
    def cost_usd(self):
        return self.done / 1000

tell(Task(framework="rllib", env_id="CartPole-v1", seed=3, sampler="own", steps=250,
          num_actors=2, fragment=8, evaluate_every_steps=100, episodes=2, minibatch=8, epochs=1),
     Still())
"""


def test_a_line_is_told_before_between_and_after() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    lines = [FrameworkEvaluation.model_validate(json.loads(x)) for x in done.stdout.splitlines()]
    assert [line.env_steps for line in lines] == [0, 100, 200, 250]
    assert [line.cost_usd for line in lines] == [0.0, 0.1, 0.2, 0.25]
    # The same episodes for the same policy.
    assert len({line.returns for line in lines}) == 1
    assert len(lines[0].returns) == 2
    assert "a library talks" in done.stderr
