"""Tasks whose observations do not show all that matters: without a memory they cannot be solved.

`Recall-v0` shows one of four cues, then nothing for some steps, and then asks for the cue. Whatever
a policy without a memory answers, it sees the same question after every cue: it is right in one
episode of four on average, and no policy of its kind is right more often.

`HiddenCartPole-v0` is CartPole-v1 that shows where cart and pole are, not how fast they move.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

NUM_CUES = 4
DELAY = 16
"""Steps between cue and question."""

Float32 = NDArray[np.float32]


class Recall(gymnasium.Env[Float32, np.int64]):
    """An episode is a cue, `DELAY` empty steps, and a question that pays 1 for the right answer."""

    def __init__(self, **_: Any) -> None:
        self.observation_space = Box(0.0, 1.0, (NUM_CUES + 1,), np.float32)
        self.action_space = Discrete(NUM_CUES)
        self._cue = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Draw a cue and show it."""
        super().reset(seed=seed, options=options)
        self._cue, self._step = int(self.np_random.integers(NUM_CUES)), 0
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Go on; only the answer to the question counts."""
        asked = self._step == DELAY + 1
        reward = float(asked and int(action) == self._cue)
        self._step += 1
        return self._seen(), reward, asked, False, {}

    def _seen(self) -> Float32:
        observation = np.zeros(NUM_CUES + 1, np.float32)
        if self._step == 0:
            observation[self._cue] = 1.0
        observation[NUM_CUES] = self._step == DELAY + 1
        return observation


class HiddenCartPole(gymnasium.ObservationWrapper[Float32, np.int64, Float32]):
    """CartPole without velocities."""

    def __init__(self, **settings: Any) -> None:
        env: gymnasium.Env[Any, Any] = CartPoleEnv(**settings)
        super().__init__(env)
        shown = env.observation_space
        assert isinstance(shown, Box)
        self.observation_space = Box(shown.low[::2], shown.high[::2], dtype=np.float32)

    def observation(self, observation: Float32) -> Float32:
        """Return the cart's place and the pole's angle."""
        return observation[::2]


gymnasium.register("Recall-v0", Recall)
gymnasium.register("HiddenCartPole-v0", HiddenCartPole, max_episode_steps=500)
