"""An environment that is rebuilt for every reset.

Some simulators do not reset all of their state: earlier episodes change later episodes.
"""

from collections.abc import Callable
from typing import Any

import gymnasium

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

LONG_SEED = 2**63 - 2**32
"""A 63-bit seed like those of actors, with room above it: an environment may count up from its
seed to derive more."""


class Rebuilt(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Rebuilds the environment for every reset except for the first."""

    def __init__(self, make: Callable[[], Env]) -> None:
        super().__init__(make())
        self._make = make
        self._is_new = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed, the previous environment draws one."""
        if not self._is_new:
            if seed is None:
                seed = int(self.env.unwrapped.np_random.integers(LONG_SEED))
            self.env.close()
            self.env = self._make()
        self._is_new = False
        return self.env.reset(seed=seed, options=options)
