"""The benchmark of parts and masks: a run is made once, and the tasks are what they say."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.environment import describe_environment
from benchmarks.observation_tasks import FREE, NUM_MACHINES, PIXELS, SIDE, Camera, Dispatch
from benchmarks.observations import TASKS
from benchmarks.seed_runs import SeedRun, read_runs, table
from shared.contracts.environment_ref import EnvironmentRef


def test_a_run_is_made_once_and_told_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NITRO_SB3_CONTRIB_PYTHON", raising=False)
    made: list[dict[str, Any]] = []

    def own_run(ref: EnvironmentRef, _rule: object, **given: Any) -> SeedRun:
        made.append({**given, "wrappers": [wrapper.name for wrapper in ref.wrappers]})
        return SeedRun(
            env_id=ref.env_id,
            policy=given["policy"],
            seed=given["seed"],
            returns=(1.0, 2.0),
            env_steps=given["steps"],
            cpu_s=0.5,
            environment=describe_environment(),
        )

    monkeypatch.setattr("benchmarks.observations.own_run", own_run)
    out = tmp_path / "observations.jsonl"
    command = ["observations", "--only", "Dispatch-v0", "--seeds", "1", "--out", str(out)]
    assert main(command) == main(command) == 0
    found = [SeedRun.model_validate_json(line) for line in out.read_text().splitlines()]
    assert [each.policy for each in found] == ["nitro, masked", "nitro, no mask"]
    asked = {"seed": 1, "steps": TASKS["Dispatch-v0"].steps}
    assert made == [
        {**asked, "policy": "nitro, masked", "wrappers": ["ActionMask"]},
        {**asked, "policy": "nitro, no mask", "wrappers": []},
    ]
    assert "| `Dispatch-v0` | nitro, masked | 1.5 ± 0 |" in capsys.readouterr().out


def test_the_page_has_the_table_of_the_runs() -> None:
    root = Path(__file__).parents[2]
    runs = read_runs(root / "benchmarks" / "results" / "observations.jsonl")
    assert len(runs) == 27
    page = (root / "docs" / "results" / "observations.md").read_text()
    assert table(runs) in page


def test_the_goal_is_in_the_picture_alone_and_the_place_in_the_numbers_alone() -> None:
    env = Camera()
    seen, _ = env.reset(seed=3)
    pictures, places = {seen["picture"].tobytes()}, set()
    for action in (0, 1, 2, 3, 0, 0, 2, 2):
        place = np.rint((seen["place"] + 1) * (SIDE - 1) / 2)
        goal = np.argwhere(seen["picture"][::PIXELS, ::PIXELS, 0])[0]
        places.add(tuple(place))
        seen, reward, arrived, *_ = env.step(np.int64(action))
        pictures.add(seen["picture"].tobytes())
        where = np.rint((seen["place"] + 1) * (SIDE - 1) / 2)
        assert arrived == (where == goal).all()
        assert reward == pytest.approx(float(arrived) - 0.02)
        if arrived:
            break
    assert len(pictures) == 1
    assert len(places) > 1


def test_a_busy_machine_ends_the_episode_and_some_machine_is_always_free() -> None:
    env = Dispatch()
    env.reset(seed=1)
    free = []
    for _ in range(300):
        masks = env.action_masks()
        free.append(masks.mean())
        observation, reward, ended, *_ = env.step(np.int64(masks.argmax()))
        assert not ended
        assert 0 <= reward <= 1
        np.testing.assert_array_equal(observation[NUM_MACHINES:], env.action_masks())
    assert min(free) > 0
    assert np.mean(free) == pytest.approx(FREE + (1 - FREE) / NUM_MACHINES, abs=0.05)
    _, reward, ended, *_ = env.step(np.int64(env.action_masks().argmin()))
    assert (reward, ended) == (0.0, True)


def test_both_tasks_are_registered_with_their_limits() -> None:
    limits = [gymnasium.spec(name).max_episode_steps for name in ("Camera-v0", "Dispatch-v0")]
    assert limits == [20, 64]
