"""Films of policies: written by the real encoders and read back by them."""

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
from PIL import Image, ImageSequence

from nitro.errors import CommandError
from nitro.runs.drawing.video import GIF_FRAMES, recorded
from nitro.runs.evaluate import EvaluationReport, evaluate_run, film_run
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from tests.nitro.checkpoints import RIGHT, still_policy, stubborn_policy, write_checkpoint

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

    def __init__(
        self, render_mode: str | None = None, picture: str = "colour", num_steps: int = STEPS
    ) -> None:
        self.render_mode, self.picture, self.num_steps = render_mode, picture, num_steps
        self.elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        return np.zeros(4, np.float32), 1.0, self.elapsed == self.num_steps, False, {}

    def render(self) -> Any:
        if self.picture == "none":
            return None
        return np.full((*SIZE, 3), 255 * self.elapsed // self.num_steps, np.uint8)


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
    assert b"62x60" in decoded.stderr  # a line of text below
    assert b"30 fps" in decoded.stderr  # every second step: more would only take longer to draw
    pictures = np.frombuffer(decoded.stdout, np.uint8).reshape(-1, 60, SIZE[1])[:, : SIZE[0]]
    frames = pictures.mean(axis=(1, 2))
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
    with pytest.raises(CommandError, match=r"pygame.*pip install -e '.\[local\]'"):
        evaluated(tmp_path, "CartPole-v1")


def test_a_gif_holds_the_beginning_of_an_episode(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path, next_round=7, policy=stubborn_policy(RIGHT), env_id="Painted-v0"
    )
    film = film_run(folder)
    assert film == folder / "videos" / "policy-000007.gif"
    with Image.open(film) as gif:
        assert gif.size == (SIZE[1], 60)
        frames = [
            (each.info["duration"], each.convert("L")) for each in ImageSequence.Iterator(gif)
        ]
    assert {duration for duration, _ in frames} == {50}
    seen = [np.asarray(frame)[: SIZE[0]].mean() for _, frame in frames]
    np.testing.assert_allclose(seen, np.linspace(0, 255, 1 + STEPS // 3), atol=6)

    with recorded(Painted(num_steps=10_000), tmp_path / "long.gif") as env:
        env.reset()
        steps = 0
        while not env.step(0)[3]:
            steps += 1
    assert steps < 3 * GIF_FRAMES


def test_the_camera_of_a_film_finds_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "hopper.gif"
    with recorded(gymnasium.make("Hopper-v5"), path) as env:
        env.reset(seed=1)
    with Image.open(path) as gif:
        red, _, blue = np.moveaxis(np.asarray(gif.convert("RGB")).astype(int), 2, 0)
    rows, columns = np.nonzero(red > blue + 25)
    assert np.ptp(columns) < np.ptp(rows)  # upright, and all of it
    assert 0 < rows.min() < rows.max() < red.shape[0] - 20


def test_mujoco_is_drawn_without_opengl(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path,
        next_round=1,
        policy=still_policy(),
        env_id="InvertedPendulum-v5",
        env_kwargs={"max_episode_steps": 2},
        environment=PENDULUM,
    )
    nothing = {"DISPLAY": "", "MUJOCO_GL": "disabled"}
    done = subprocess.run(
        [sys.executable, "-m", "nitro.cli.main", "evaluate", str(folder), "--video", "--json"],
        env=os.environ | nothing,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = EvaluationReport.model_validate_json(done.stdout)
    assert report.lengths == [2]
    assert Path(str(report.video)).stat().st_size > 0
