"""One game of the Arcade Learning Environment with the whole preprocessing chain in one place.

The class drives the emulator directly rather than through a stack of wrappers. Each step of the
chain stands below in its order, and none can be applied twice. See
`shared.environments.atari_options` for the chain and its sources.

Invariant: after a reset with a seed, everything follows from the seed and the actions, regardless
of earlier games. The emulator takes its seed only when it loads the cartridge, which takes longer
than many rollouts. So the emulator is set to be deterministic, and sticky actions are drawn here.
"""

from collections.abc import Mapping
from typing import Any

import ale_py
import numpy as np
from ale_py import roms
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from shared.environments.area_resize import AreaResize
from shared.environments.atari_options import SCREEN_SIZE, AtariOptions
from shared.environments.games import FinishedGame, Games
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.state.keeper import NotNowError

Frames = NDArray[np.uint8]

_EMULATOR_SEED = 0
_VIDEO = b"\3\0\0\0TIA"
"""Mark before the video chip's registers in a serialised state: the chip's name with its length."""
_LINES_OFFSET = 5 * 4
"""Bytes from the registers' start to the line count of the last frame, then of the current one."""


class AtariGame(Games):
    """A game whose episodes may be single lives.

    `reset` without a seed starts the next life while the game continues, and a new game once it is
    over. `take_finished` returns the outcome of finished games.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 - Gymnasium's form

    def __init__(self, rom: str, options: AtariOptions, *, render_mode: str | None = None) -> None:
        """Load the cartridge.

        Raises:
            UnsupportedEnvironment: The game does not have the mode or difficulty.
        """
        self.options = options
        self.frame_stack, self.chain = options.frame_stack, options.chain()
        self.render_mode = render_mode
        self._ale = _loaded(rom, options)
        # Otherwise the random start of some games would depend on the games before.
        self._loaded_state = self._ale.cloneState(include_rng=True)
        self._loaded_bytes = self._emulator_bytes()
        legal = options.full_action_space
        self._actions = self._ale.getLegalActionSet() if legal else self._ale.getMinimalActionSet()
        meanings = [action.name for action in self._actions]
        self._presses_fire = options.fire_on_reset and len(meanings) > 2 and meanings[1] == "FIRE"
        self.action_space = Discrete(len(self._actions))
        shape = (options.frame_stack, *SCREEN_SIZE)
        self.observation_space = Box(0, 255, shape, np.uint8)
        screen = self._ale.getScreenDims()
        self._resize = AreaResize(screen, SCREEN_SIZE)
        self._screen = np.zeros((2, *screen), np.uint8)  # the last frame, and the one before it
        self._stack = np.zeros(shape, np.uint8)
        self._held: ale_py.Action = ale_py.Action.NOOP
        self._is_over = True
        self._lives = 0
        self.score, self._length = 0.0, 0
        self.finished = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Start the next episode; with a seed, always a new game."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.finished.clear()
            self._draw_all()
            self._ale.restoreState(self._loaded_state)
        if seed is not None or self._is_over or not self.options.terminal_on_life_loss:
            self._new_game()
        else:
            self._press(ale_py.Action.NOOP)  # leaves the lost life, as in Baselines
        if self._presses_fire:
            self._press(self._actions[1])
            self._press(self._actions[2])
        self._lives = self._ale.lives()
        self._resize.shrink(self._screen[0], self._stack[0])
        self._stack[1:] = self._stack[0]
        return self._stack.copy(), {}

    def step(self, action: int | np.int64) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Hold an action for `frame_skip` frames."""
        self._length += 1
        raw = self._hold(self._actions[action])
        self._stack[:-1] = self._stack[1:]
        self._resize.shrink(self._screen[0], self._stack[-1])
        lost = self._has_lost_life() and self.options.terminal_on_life_loss
        terminated = lost or (self._is_over and self._ale.game_over(with_truncation=False))
        truncated = self._is_over and self._ale.game_truncated()
        reward = float(np.sign(raw)) if self.options.sign_reward else raw
        return self._stack.copy(), reward, terminated, truncated, {}

    def render(self) -> NDArray[np.uint8]:
        """Return the screen in colour, # [height, width, 3]."""
        return self._ale.getScreenRGB()

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return everything that the next step or reset depends on, except for `np_random`.

        The oldest frame of the stack is left out, because the next step drops it. The screens are
        left out as well, and so is the emulator's generator, which only the emulator's own sticky
        actions would use.

        Raises:
            NotNowError: The console has not drawn all of its screen.
        """
        emulator = self._emulator_bytes()
        if not _has_drawn_all(emulator):
            raise NotNowError("the game is between two frames")
        counts = (self._held.value, self._lives, self._length, self._is_over)
        return {
            "emulator": _difference(emulator, self._loaded_bytes),
            "frames": self._stack[1:],
            "counts": np.array(counts, np.int64),
            "score": np.array(self.score),
        }

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a state of the same game; steps and resets continue as if it was played here.

        Raises:
            LookupError: An array is missing.
            ValueError: An array does not fit.
        """
        emulator, frames, counts = state["emulator"], state["frames"], state["counts"]
        if emulator.dtype != np.uint8 or frames.shape != self._stack[1:].shape:
            raise ValueError("it is of no game with as many frames")
        held, lives, length, is_over = counts.tolist()
        held_action, score = ale_py.Action(held), float(state["score"])
        self._draw_all()
        saved = _difference(emulator, self._loaded_bytes)
        try:
            self._ale.restoreState(ale_py.ALEState(saved.tobytes()))
        except (RuntimeError, SystemError) as error:
            raise ValueError(f"the emulator refuses it: {error}") from error
        if not np.array_equal(self._emulator_bytes(), saved):
            raise ValueError("it is of another game")  # the emulator restores the part it knows
        self._stack[1:] = frames
        self._held, self._lives, self._length = held_action, lives, length
        self._is_over, self.score = bool(is_over), score
        self.finished.clear()

    def _draw_all(self) -> None:
        """Play to the end of a frame, unless the emulator is at one."""
        if not _has_drawn_all(self._emulator_bytes()):
            self._ale.reset_game()  # needed if the game is over
            while not _has_drawn_all(self._emulator_bytes()):
                self._ale.act(ale_py.Action.NOOP)

    def _emulator_bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._ale.cloneState().serialize(), np.uint8)

    def _new_game(self) -> None:
        self._begin()
        if self.options.noop_max:
            for _ in range(int(self.np_random.integers(1, self.options.noop_max + 1))):
                self.score += self._ale.act(ale_py.Action.NOOP)
                if self._ale.game_over():
                    self._begin()
        self._ale.getScreenGrayscale(self._screen[0])

    def _begin(self) -> None:
        self._ale.reset_game()
        self._is_over = False
        self.score, self._length = 0.0, 0
        self._held = ale_py.Action.NOOP

    def _press(self, action: ale_py.Action) -> None:
        """Hold an action before an episode starts; if that ends the game, begin another."""
        self._hold(action)
        if self._is_over:
            self._new_game()

    def _hold(self, action: ale_py.Action) -> float:
        """Hold an action; leave the larger of the last two frames in `_screen[0]`.

        Returns:
            The raw reward.
        """
        ale, raw, last = self._ale, 0, self.options.frame_skip - 1
        for frame in range(last + 1):
            raw += ale.act(self._stuck(action))
            if frame == last - 1:
                ale.getScreenGrayscale(self._screen[1])
            if ale.game_over():
                self._is_over = True
                break
        ale.getScreenGrayscale(self._screen[0])
        if frame == last > 0:
            np.maximum(self._screen[0], self._screen[1], out=self._screen[0])
        self.score += raw
        if self._is_over and self._length:
            self.finished.append(FinishedGame(score=self.score, length=self._length))
        return float(raw)

    def _stuck(self, action: ale_py.Action) -> ale_py.Action:
        """Return the console's action: this one, or the previous one (Machado et al., 2018)."""
        sticky = self.options.sticky_actions
        if not (sticky and self.np_random.random() < sticky):
            self._held = action
        return self._held

    def _has_lost_life(self) -> bool:
        """Whether a life was lost and others are left; some games show 0 lives for a few frames."""
        before, self._lives = self._lives, self._ale.lives()
        return 0 < self._lives < before


def _has_drawn_all(state: NDArray[np.uint8]) -> bool:
    """Whether the console was at a frame's end: it has drawn as many lines as in its last frame.

    Some games spend seconds on one frame after power-on, which `act` cuts into pieces. A state does
    not record its piece (ale-py 0.12), so only an emulator at a frame's end can restore it.
    """
    registers = state.tobytes().index(_VIDEO) + len(_VIDEO)
    last_lines, lines = np.frombuffer(state, np.int32, 2, offset=registers + _LINES_OFFSET)
    return bool(last_lines == lines)


def _difference(state: NDArray[np.uint8], loaded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a state XORed with that of a game just loaded: mostly zeros; its own inverse.

    Most of a state is a generator of which the console reads a few numbers at power-on.
    """
    difference, shared = state.copy(), min(len(state), len(loaded))
    difference[:shared] ^= loaded[:shared]
    return difference


def _loaded(rom: str, options: AtariOptions) -> ale_py.ALEInterface:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", _EMULATOR_SEED)
    ale.setInt("max_num_frames_per_episode", options.max_episode_frames)
    cartridge = roms.get_rom_path(rom)
    if cartridge is None:
        raise UnsupportedEnvironment(f"ale-py has no cartridge of {rom}")
    ale.loadROM(cartridge)
    for name, value, known, choose in (
        ("mode", options.mode, ale.getAvailableModes(), ale.setMode),
        ("difficulty", options.difficulty, ale.getAvailableDifficulties(), ale.setDifficulty),
    ):
        if value is None:
            continue
        if value not in known:
            raise UnsupportedEnvironment(f"env_kwargs.{name} is {value}, {rom} has {known}")
        choose(value)
    return ale
