"""Videos of policies: written by the real encoder and read back by it."""

import ctypes.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from nitro.errors import CommandError
from nitro.runs.evaluate import EvaluationReport, evaluate_run
from nitro.runs.video import prepare_drawing, recorded
from nitro.settings import DrawingSettings
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from tests.nitro.checkpoints import RIGHT, still_policy, stubborn_policy, write_checkpoint
from tests.nitro.synthetic_run import JOB_ID

PENDULUM = EnvironmentSpec(
    env_id="InvertedPendulum-v5",
    observation=ObservationSpec(shape=(4,), dtype="float32"),
    action=ContinuousActionSpec(low=(-3.0,), high=(3.0,)),
    max_episode_steps=1000,
    versions={},
)
STEPS, SIZE = 24, (40, 62)
"""Of an episode; height and width of its pictures."""


class Painted(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Paints how far the episode is, from black to white."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}
    observation_space = Box(0, 1, (4,), np.float32)
    action_space = Discrete(2)

    def __init__(self, render_mode: str | None = None, picture: str = "colour") -> None:
        self.render_mode, self.picture, self.elapsed = render_mode, picture, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        return np.zeros(4, np.float32), 1.0, self.elapsed == STEPS, False, {}

    def render(self) -> Any:
        if self.picture == "none":
            return None
        return np.full((*SIZE, 3), 255 * self.elapsed // STEPS, np.uint8)


class Breaking(Painted):
    """Ends in the middle of its episode."""

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise RuntimeError("half way")


def play(env: gymnasium.Env[Any, Any]) -> None:
    env.reset()
    env.step(0)


@pytest.fixture(autouse=True)
def _painted() -> Iterator[None]:
    gymnasium.register("Painted-v0", entry_point=lambda **kwargs: Painted(**kwargs))
    yield
    del gymnasium.registry["Painted-v0"]


def evaluated(tmp_path: Path, env_id: str, *, episodes: int = 1, **kwargs: Any) -> EvaluationReport:
    folder = write_checkpoint(
        tmp_path, next_round=7, policy=stubborn_policy(RIGHT), env_id=env_id, env_kwargs=kwargs
    )
    return evaluate_run(folder, episodes=episodes, seed=1, video=True)


def test_every_episode_is_in_the_video(tmp_path: Path) -> None:
    report = evaluated(tmp_path, "Painted-v0", episodes=2)
    assert report.returns == [STEPS, STEPS]
    assert report.video is not None
    path = Path(report.video)
    assert path.parent.name == "videos"
    assert path.name == "policy-000007.mp4"
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    decode = [ffmpeg, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    decoded = subprocess.run(decode, capture_output=True, check=True)
    assert b"62x40" in decoded.stderr
    assert b"30 fps" in decoded.stderr  # every second step: more would only take longer to draw
    frames = np.frombuffer(decoded.stdout, np.uint8).reshape(-1, SIZE[0] * SIZE[1]).mean(axis=1)
    per_episode = 1 + STEPS // 2
    assert len(frames) == 2 * per_episode
    brightness = np.linspace(0, 255, per_episode)
    np.testing.assert_allclose(frames, np.tile(brightness, 2), atol=6)


def test_the_returns_are_those_without_a_video(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=7, policy=stubborn_policy(RIGHT))
    pytest.importorskip("pygame")
    with_video = evaluate_run(folder, episodes=3, seed=1, video=True)
    without = evaluate_run(folder, episodes=3, seed=1)
    assert with_video.model_copy(update={"video": None}) == without


def test_what_cannot_be_drawn_is_said_and_leaves_no_file(tmp_path: Path) -> None:
    message = r"render\(\) returned no picture \[H, W, 3\] but NoneType"
    with pytest.raises(CommandError, match=message):
        evaluated(tmp_path, "Painted-v0", picture="none")
    assert not list(tmp_path.rglob("*.mp4"))


def test_an_earlier_video_outlives_one_that_fails(tmp_path: Path) -> None:
    earlier = tmp_path / "policy.mp4"
    earlier.write_bytes(b"as it was")
    with pytest.raises(RuntimeError, match="half way"), recorded(Breaking(), earlier) as env:
        play(env)
    assert [path.name for path in tmp_path.iterdir()] == ["policy.mp4"]
    assert earlier.read_bytes() == b"as it was"
    with recorded(Painted(), earlier) as env:
        play(env)
    assert earlier.read_bytes() != b"as it was"


def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(CommandError, match=r"pygame.*pip install -e '.\[video\]'"):
        evaluated(tmp_path, "CartPole-v1")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(CommandError, match=r"imageio-ffmpeg: pip install -e '.\[video\]'"):
        evaluated(tmp_path, "Painted-v0")


@pytest.mark.parametrize("given", [{"MUJOCO_GL": "glfw"}, {"DISPLAY": ":0"}])
def test_a_screen_and_a_choice_of_ones_own_are_left_alone(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    prepare_drawing(DrawingSettings())
    assert os.environ.get("MUJOCO_GL") == given.get("MUJOCO_GL")


def filmed(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Draw a pendulum in a process of its own: MuJoCo chooses what draws once."""
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    write_checkpoint(
        folder,
        next_round=1,
        policy=still_policy(),
        env_id="InvertedPendulum-v5",
        env_kwargs={"max_episode_steps": 2},
        environment=PENDULUM,
    )
    return subprocess.run(
        [sys.executable, "-m", "nitro.cli.main", "evaluate", str(folder / JOB_ID)]
        + ["--video", "--json"],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.skipif(not ctypes.util.find_library("EGL"), reason="needs a library of OpenGL: EGL")
def test_mujoco_is_drawn_without_a_screen(tmp_path: Path) -> None:
    done = filmed(tmp_path)
    assert done.returncode == 0, done.stderr
    report = EvaluationReport.model_validate_json(done.stdout)
    assert report.lengths == [2]
    assert Path(str(report.video)).stat().st_size > 0


def test_an_opengl_that_is_not_there_is_named_with_what_installs_it(tmp_path: Path) -> None:
    done = filmed(tmp_path, MUJOCO_GL="glfw", DISPLAY=":nowhere")
    assert done.returncode == 1
    assert "apt-get install libegl1 libgl1" in done.stderr
    assert "Traceback" not in done.stderr
