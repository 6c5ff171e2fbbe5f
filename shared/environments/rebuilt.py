"""An environment that is built anew for every reset.

Some simulators do not reset all of their state: what was played before changes what comes next.
"""

from collections.abc import Callable
from typing import Any

import gymnasium

Env = gymnasium.Env[Any, Any]  # observations and actions are whatever the spaces say

LONG_SEED = 2**63 - 2**32
"""Of 63 bits, as actors reset with, and as theirs with room above it: an environment may count
further seeds up from it."""


class Rebuilt(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Builds the environment anew for every reset but the first."""

    def __init__(self, make: Callable[[], Env]) -> None:
        super().__init__(make())
        self._make = make
        self._is_new = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed, with one that the environment before has drawn."""
        if not self._is_new:
            if seed is None:
                seed = int(self.env.unwrapped.np_random.integers(LONG_SEED))
            self.env.close()
            self.env = self._make()
        self._is_new = False
        return self.env.reset(seed=seed, options=options)
