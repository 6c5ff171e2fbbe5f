"""The benchmark of tasks that need a memory: a run that was made is not made again."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.memory import STEPS
from benchmarks.memory_tasks import DELAY, NUM_CUES
from benchmarks.seed_runs import SeedRun


def test_a_run_is_made_once_and_told_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STEPS, "Recall-v0", 2048)
    out = tmp_path / "memory.jsonl"
    command = ["memory", "--only", "Recall-v0", "--policies", "none", "--seeds", "1"]
    command += ["--out", str(out)]
    assert main(command) == 0
    (found,) = [SeedRun.model_validate_json(line) for line in out.read_text().splitlines()]
    assert (found.policy, found.seed, found.env_steps) == ("none", 1, 2048)
    # Whatever it learned, it gives one answer to the one question that it sees.
    assert set(found.returns) == {0.0, 1.0}
    monkeypatch.setattr("benchmarks.memory._ours", pytest.fail)
    assert main(command) == 0
    assert "| `Recall-v0` | none |" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 1


def test_the_question_is_the_same_after_every_cue() -> None:
    env = gymnasium.make("Recall-v0")
    questions, cues = [], set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        cue = int(observation[:NUM_CUES].argmax())
        cues.add(cue)
        for _ in range(DELAY + 1):
            observation, reward, terminated, *_ = env.step(np.int64(cue))
            assert (reward, terminated) == (0.0, False)
        questions.append(observation)
        *_, terminated, _, _ = env.step(np.int64((cue + seed) % NUM_CUES))
        assert terminated
    assert cues == set(range(NUM_CUES))
    assert len({question.tobytes() for question in questions}) == 1


def test_a_hidden_cart_pole_shows_no_velocities() -> None:
    hidden, whole = gymnasium.make("HiddenCartPole-v0"), gymnasium.make("CartPole-v1")
    seen, told = hidden.reset(seed=1)[0], whole.reset(seed=1)[0]
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(seen, told[[0, 2]])
        seen, told = hidden.step(action)[0], whole.step(action)[0]
