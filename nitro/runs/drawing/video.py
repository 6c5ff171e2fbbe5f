"""Films of a policy, drawn without a screen: what the agent does, and its return so far.

MuJoCo's simulations are drawn by `simulator_picture` beside this, everything else draws itself.
A film is an mp4 where imageio-ffmpeg is installed, and otherwise a GIF, which Pillow writes.
"""

import contextlib
import importlib.util
import math
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from nitro.errors import EXIT_FAILED, CommandError
from shared.contracts.job_spec import EnvironmentRef
from shared.environments.building import Env, make_environment
from shared.environments.spaces import UnsupportedEnvironment

_MAX_FPS = {".mp4": 30.0, ".gif": 20.0}
"""More pictures per second would only take longer to draw."""
_DEFAULT_FPS = 30
GIF_FRAMES = 200
"""Most pictures of a GIF: ten seconds, a megabyte or two."""
_WIDEST_PX = 480
"""Wider pictures are reduced: they would be large files, and their lines have jagged edges."""
_CAPTION_PX = 20
_EXTRA = "pip install -e '.[local]' in a clone"

Picture = NDArray[np.uint8]
Writer = Generator[None, Picture, None]


class VideoError(CommandError):
    """There can be no film; the message says what is missing."""

    exit_code = EXIT_FAILED


def video_suffix() -> str:
    """Return the suffix of films that can be written here at any length, or else `.gif`."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


def drawing_environment(ref: EnvironmentRef) -> Env:
    """Return an environment that can be drawn.

    Raises:
        VideoError: There is one, but it cannot be drawn; names what is missing.
        UnsupportedEnvironment: There is none.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would greet on stdout
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame's library would look for a screen
    try:
        return make_environment(ref, raw_rewards=True, render_mode="rgb_array")
    except UnsupportedEnvironment as error:
        with contextlib.closing(make_environment(ref)):  # or the reference is wrong
            raise VideoError(_what_is_missing(error)) from error


@contextlib.contextmanager
def recorded(env: Env, path: Path) -> Iterator[Env]:
    """Yield the environment as one that films itself into an .mp4 or .gif, once that is whole.

    A GIF holds `GIF_FRAMES` pictures: with the last of them the episode is cut.

    Raises:
        VideoError: It cannot draw, or the film cannot be written.
    """
    half = path.with_stem(f"{path.stem}.part")
    recorder = _Recorder(env, half)
    try:
        yield recorder
    except BaseException:
        recorder.end()
        half.unlink(missing_ok=True)
        raise
    recorder.end()
    with contextlib.suppress(FileNotFoundError):  # nothing was drawn
        half.replace(path)


class _Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws after resets and every few steps."""

    def __init__(self, env: Env, path: Path) -> None:
        super().__init__(env)
        fps = float(env.metadata.get("render_fps") or _DEFAULT_FPS)
        self._every = math.ceil(fps / _MAX_FPS[path.suffix])
        self._fps = fps / self._every
        self._path = path
        self._frames_left = GIF_FRAMES if path.suffix == ".gif" else math.inf
        self._steps, self._return = 0, 0.0
        self._writer: Writer | None = None
        self._render: Callable[[], Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset and draw."""
        started = self.env.reset(seed=seed, options=options)
        self._steps, self._return = 0, 0.0
        self._draw()
        return started

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and draw if it is time to."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._return += float(reward)
        if self._steps % self._every == 0 or terminated or truncated:
            self._draw()
        return observation, reward, terminated, truncated or self._frames_left <= 0, info

    def end(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _draw(self) -> None:
        if self._frames_left <= 0:
            return
        self._frames_left -= 1
        # Not before a reset: where the camera stands follows from what it sees.
        self._render = self._render or _renderer(self.env)
        try:
            picture = self._render()
        except Exception as error:  # OpenGL and pygame raise what they like
            raise VideoError(_what_is_missing(error)) from error
        if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3):
            raise VideoError(
                "the environment's render() returned no picture [H, W, 3] but "
                f"{type(picture).__name__}"
            )
        frame = _captioned(picture, f"step {self._steps:,}   return {self._return:,.0f}")
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write = _gif if self._path.suffix == ".gif" else _mp4
            self._writer = write(self._path, frame.shape[:2], fps=self._fps)
            next(self._writer)
        self._writer.send(frame)


def _renderer(env: Env) -> Callable[[], Any]:
    """Return what draws an environment as it stands."""
    try:
        from nitro.runs.drawing.simulator_picture import SimulatorPicture, draws
    except ImportError:  # no MuJoCo here
        return env.render
    simulation: object = env.unwrapped
    return SimulatorPicture(simulation).draw if draws(simulation) else env.render


def _captioned(picture: NDArray[Any], text: str) -> Picture:
    """Return a picture [H, W, 3], reduced if it is large, with a line of text below it."""
    image = Image.fromarray(picture.astype(np.uint8))
    image = image.reduce(math.ceil(image.width / _WIDEST_PX))
    framed = Image.new("RGB", (image.width, image.height + _CAPTION_PX), "white")
    framed.paste(image)
    place, font = (6, image.height + 3), ImageFont.load_default(12)
    ImageDraw.Draw(framed).text(place, text, fill=(60, 60, 60), font=font)
    return np.asarray(framed)


def _what_is_missing(error: Exception) -> str:
    told, fix = f"{type(error).__name__}: {error}", "Its own render() failed"
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        fix = _EXTRA
    elif isinstance(error, UnsupportedEnvironment | NotImplementedError):
        told = str(error) if str(error) else "it has no render()"
        fix = (
            "Its constructor takes render_mode, metadata['render_modes'] lists 'rgb_array', and "
            "render() returns a picture [H, W, 3]"
        )
    return f"the environment cannot be drawn: {told}. {fix}"


def _mp4(path: Path, size: tuple[int, ...], *, fps: float) -> Writer:
    import imageio_ffmpeg

    # An even number of pixels is all that the format asks for; ffmpeg is quiet but for errors.
    writer = imageio_ffmpeg.write_frames(
        str(path), (size[1], size[0]), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)  # starts it, as its documentation says
    with contextlib.closing(writer):
        while True:
            picture = yield
            writer.send(np.ascontiguousarray(picture).tobytes())


def _gif(path: Path, size: tuple[int, ...], *, fps: float) -> Writer:
    frames: list[Picture] = []
    try:
        while True:
            frames.append((yield))
    finally:
        # One palette for all: colours do not flicker, and what stands still takes no room.
        some = np.vstack(frames[:: max(1, len(frames) // 8)])
        palette = Image.fromarray(some).quantize(method=Image.Quantize.FASTOCTREE)
        images = (
            Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
            for frame in frames
        )
        pace_ms = 10 * round(100 / fps)  # GIFs count hundredths of a second
        first = next(images)
        first.save(path, save_all=True, append_images=images, duration=pace_ms, loop=0)
