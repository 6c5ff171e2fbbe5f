import contextlib
import time
from typing import Any

import gymnasium
import numpy as np
import pytest

from shared.environments.pace import slow_step_s


class Slow(gymnasium.Env[Any, Any]):
    """Takes so many seconds for a step; the episode ends with each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, step_s: float, breaks: bool) -> None:
        self.step_s, self.breaks = step_s, breaks

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.breaks:
            raise OSError("no licence")
        time.sleep(self.step_s)
        return np.zeros(1, np.float32), 0.0, True, False, {}


def test_a_slow_step_is_measured_and_a_fast_one_is_not() -> None:
    assert slow_step_s(Slow(0.0, False), contextlib.nullcontext) == 0.0
    assert slow_step_s(Slow(0.03, False), contextlib.nullcontext) == pytest.approx(0.03, rel=5)
    assert slow_step_s(Slow(0.03, False), contextlib.nullcontext) >= 0.03
    assert slow_step_s(Slow(0.002, False), contextlib.nullcontext) >= 0.002
    assert slow_step_s(Slow(0.03, True), contextlib.nullcontext) == 0.0
