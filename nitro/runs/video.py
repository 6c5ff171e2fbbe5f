"""Videos of a policy, drawn without a screen.

What draws differs by environment: MuJoCo asks OpenGL, which without a screen comes from EGL or
OSMesa; Gymnasium's classic control asks pygame; Atari draws by itself. Whatever is missing is named
together with what installs it.
"""

import contextlib
import ctypes.util
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from nitro.errors import EXIT_FAILED, CommandError
from nitro.settings import DrawingSettings
from shared.contracts.job_spec import EnvironmentRef
from shared.environments.building import Env, make_environment
from shared.environments.spaces import UnsupportedEnvironment

_MAX_FPS = 30
"""More pictures per second would only take longer to draw."""
_DEFAULT_FPS = 30
_EXTRA = "pip install -e '.[video]' in a clone"
_OPENGL = (
    "MuJoCo draws without a screen by EGL or OSMesa; on Debian and Ubuntu: "
    "apt-get install libegl1 libgl1, or libosmesa6 and MUJOCO_GL=osmesa"
)


class VideoError(CommandError):
    """There can be no video; the message says what is missing."""

    exit_code = EXIT_FAILED


def prepare_drawing(settings: DrawingSettings) -> None:
    """Choose what draws; to be called before the environment is built.

    MuJoCo's library reads its choice from the environment, and takes the screen if there is none.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would greet on stdout
    if settings.mujoco_gl is None and settings.display is None:
        names = {"egl": "EGL", "osmesa": "OSMesa"}
        found = [name for name, library in names.items() if ctypes.util.find_library(library)]
        if found:
            os.environ["MUJOCO_GL"] = found[0]


def drawing_environment(ref: EnvironmentRef) -> Env:
    """Return an environment that can be drawn.

    Raises:
        VideoError: There is one, but it cannot be drawn; names what is missing.
        UnsupportedEnvironment: There is none.
    """
    try:
        return make_environment(ref, raw_rewards=True, render_mode="rgb_array")
    except UnsupportedEnvironment as error:
        with contextlib.closing(make_environment(ref)) as plain:  # or the reference is wrong
            raise VideoError(_what_is_missing(plain, error)) from error


@contextlib.contextmanager
def recorded(env: Env, path: Path) -> Iterator[Env]:
    """Yield the environment as one that writes what it draws into an mp4 file, once it is whole.

    Raises:
        VideoError: It cannot draw, or the video cannot be written.
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
        self._every = max(1, round(fps / _MAX_FPS))
        self._fps = fps / self._every
        self._path = path
        self._steps = 0
        self._writer: Generator[None, bytes, None] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset and draw."""
        started = self.env.reset(seed=seed, options=options)
        self._steps = 0
        self._draw()
        return started

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and draw if it is time to."""
        stepped = self.env.step(action)
        self._steps += 1
        if self._steps % self._every == 0 or stepped[2] or stepped[3]:
            self._draw()
        return stepped

    def end(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _draw(self) -> None:
        try:
            picture: Any = self.env.render()
        except Exception as error:  # OpenGL and pygame raise what they like
            raise VideoError(_what_is_missing(self.env, error)) from error
        if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3):
            raise VideoError(
                "the environment's render() returned no picture [H, W, 3] but "
                f"{type(picture).__name__}"
            )
        if self._writer is None:
            self._writer = _writer(self._path, picture.shape[:2], fps=self._fps)
        self._writer.send(np.ascontiguousarray(picture, np.uint8).tobytes())


def _what_is_missing(env: Env, error: Exception) -> str:
    bases = {base.__module__ for base in type(env.unwrapped).__mro__}
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        fix = _EXTRA
    elif "gymnasium.envs.mujoco.mujoco_env" in bases:
        fix = _OPENGL
    else:
        fix = "the environment itself failed"
    return f"the environment cannot be drawn: {error!r}. {fix}"


def _writer(path: Path, size: tuple[int, ...], *, fps: float) -> Generator[None, bytes, None]:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise VideoError(f"a video needs imageio-ffmpeg: {_EXTRA}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    # An even number of pixels is all that the format asks for; ffmpeg is quiet but for errors.
    writer: Generator[None, bytes, None] = imageio_ffmpeg.write_frames(
        str(path), (size[1], size[0]), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)  # type: ignore[arg-type] # starts it, as its documentation says
    return writer
