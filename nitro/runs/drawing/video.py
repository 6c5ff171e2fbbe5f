"""Films of a policy, drawn without a screen: the agent's behaviour, and its return so far.

`simulator_picture` draws MuJoCo simulations; other environments draw themselves. A film is an mp4
if imageio-ffmpeg is installed, and otherwise a GIF, which Pillow writes.
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
from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import Env, make_environment
from shared.environments.spaces import UnsupportedEnvironment

_MAX_FPS = {".mp4": 30.0, ".gif": 20.0}
"""Most pictures per second; more would only take longer to draw."""
_DEFAULT_FPS = 30
GIF_FRAMES = 200
"""Most pictures in a GIF: ten seconds, a megabyte or two."""
_WIDEST_PX = 480
"""Widest picture; wider ones are reduced, for smaller files and smoother lines."""
_CAPTION_PX = 20
_EXTRA = "pip install -e '.[local]' in a clone"

Picture = NDArray[np.uint8]
Writer = Generator[None, Picture, None]


class VideoError(CommandError):
    """A film is impossible; the message names the missing part."""

    exit_code = EXIT_FAILED


def video_suffix() -> str:
    """Return the suffix of films without a length limit if possible here, or else `.gif`."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


def drawing_environment(ref: EnvironmentRef) -> Env:
    """Return an environment that can be drawn.

    Raises:
        VideoError: The environment cannot be drawn; names the missing part.
        UnsupportedEnvironment: The environment cannot be built.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame prints a greeting on stdout
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame's library requires a screen
    try:
        return make_environment(ref, raw_rewards=True, render_mode="rgb_array")
    except UnsupportedEnvironment as error:
        with contextlib.closing(make_environment(ref)):  # raises if the reference is wrong
            raise VideoError(_what_is_missing(error)) from error


@contextlib.contextmanager
def recorded(env: Env, path: Path) -> Iterator[Env]:
    """Yield the environment with recording to an .mp4 or .gif; the file appears when complete.

    A GIF has at most `GIF_FRAMES` pictures; the last one ends the episode.

    Raises:
        VideoError: The environment cannot be drawn, or the film cannot be written.
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
    with contextlib.suppress(FileNotFoundError):  # no picture was drawn
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
        """Step, and draw if a picture is due."""
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
        # Not before a reset: the camera's position depends on the scene.
        self._render = self._render or _renderer(self.env)
        try:
            picture = self._render()
        except Exception as error:  # OpenGL and pygame raise many kinds of errors
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
    """Return the function that draws an environment's current state."""
    try:
        from nitro.runs.drawing.simulator_picture import SimulatorPicture, draws
    except ImportError:  # MuJoCo is not installed
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

    # The format only requires an even number of pixels; ffmpeg prints only errors.
    writer = imageio_ffmpeg.write_frames(
        str(path), (size[1], size[0]), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)  # starts the generator, as documented
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
        # One palette for all pictures: colours do not flicker, and still areas take no space.
        some = np.vstack(frames[:: max(1, len(frames) // 8)])
        palette = Image.fromarray(some).quantize(method=Image.Quantize.FASTOCTREE)
        images = (
            Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
            for frame in frames
        )
        pace_ms = 10 * round(100 / fps)  # GIF delays are in hundredths of a second
        first = next(images)
        first.save(path, save_all=True, append_images=images, duration=pace_ms, loop=0)
