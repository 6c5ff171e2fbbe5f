"""How a game of the Arcade Learning Environment is played: the options of a job's `env_kwargs`.

Published Atari scores rest on this chain (Mnih et al., "Human-level control through deep
reinforcement learning", Nature 518, 2015, Methods; wrapped as in OpenAI Baselines,
Stable-Baselines3 and CleanRL). It is the same for every game and every id of a game, so that a
frame is never skipped twice; `chain` prints it.
"""

from typing import Annotated

from pydantic import Field

from shared.contracts.message import Count, Message, Number, PositiveInt

SCREEN_SIZE = (84, 84)
"""Height and width of a frame as the policy sees it."""

_SmallCount = Annotated[int, Field(strict=True, ge=1, le=16)]
_MAX_NOOPS = 3600
"""A minute at the console's speed."""
_MAX_INT32 = 2**31 - 1
"""Largest value of the emulator's frame counter."""
_Flag = Annotated[bool, Field(strict=True)]


class AtariOptions(Message):
    """Options of a game; the defaults are the published ones."""

    frame_stack: _SmallCount = 4
    """Frames per observation, oldest first; the Nitro paper speaks of 3."""
    frame_skip: _SmallCount = 4
    """Frames that each action is held for."""
    noop_max: Annotated[Count, Field(le=_MAX_NOOPS)] = 30
    """A game starts with 1 to this many frames without action; 0 starts it at once."""
    terminal_on_life_loss: _Flag = True
    """A lost life ends the episode for learning; the game goes on with the next one."""
    fire_on_reset: _Flag = True
    """Press FIRE, then the third action, where an episode starts and the game has FIRE."""
    sign_reward: _Flag = True
    """Learn from the reward's sign; the score that is reported stays raw."""
    sticky_actions: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """Probability per frame that the action before is repeated; 0.25 for ids that end in v5."""
    full_action_space: _Flag = False
    """All 18 actions of the joystick, also those that do nothing in this game."""
    max_episode_frames: Annotated[PositiveInt, Field(le=_MAX_INT32)] = 108_000
    """Frames after which a game is cut (truncated): half an hour at the console's speed."""
    mode: Count | None = None
    """Variant of the game, by its number in the cartridge; the cartridge's own by default."""
    difficulty: Count | None = None
    """Difficulty switch; the cartridge's own by default."""

    @property
    def max_episode_steps(self) -> int:
        """Most agent steps of a game."""
        return -(-self.max_episode_frames // self.frame_skip)

    def chain(self) -> tuple[str, ...]:
        """Return the whole chain between the console and the policy, one step a line."""
        height, width = SCREEN_SIZE
        lost_life = "ends the episode, the game goes on" if self.terminal_on_life_loss else "-"
        return (
            f"sticky actions: probability {self.sticky_actions:g} per frame",
            f"no-op start: {f'1 to {self.noop_max} frames' if self.noop_max else '-'}",
            f"frame skip: {self.frame_skip}, in one place (the game itself skips none)",
            "frame: largest value of the last two, grey",
            f"size: {height} x {width}, mean by area",
            f"lost life: {lost_life}",
            f"start of an episode: {'FIRE if the game has it' if self.fire_on_reset else '-'}",
            f"reward learnt from: {'sign' if self.sign_reward else 'raw'}",
            "return reported: raw score of the whole game",
            f"observation: {self.frame_stack} frames, the first one repeated at the start",
            f"time limit: {self.max_episode_frames} frames, as truncation",
        )
