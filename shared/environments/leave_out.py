"""A wrapper that leaves out parts of observations."""

from typing import Any

import gymnasium
from gymnasium.spaces import Dict, Space

from shared.environments.parts import Part, parts

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions


class LeaveOut(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Leaves out parts of a `Dict` or `Tuple`; a single remaining part becomes the observation."""

    def __init__(self, env: Env, parts: str) -> None:
        """Take comma-separated names of parts; dots name inner parts: `eyes.left`.

        Raises:
            ValueError: A name matches no part, or no part would remain.
        """
        super().__init__(env)
        names = [name.strip() for name in parts.split(",")]
        self._kept = _kept(env.observation_space, names)
        self.observation_space = (
            self._kept[0].space
            if len(self._kept) == 1
            else Dict({part.name: part.space for part in self._kept})
        )

    def observation(self, observation: Any) -> Any:
        """Return the remaining parts by name."""
        if len(self._kept) == 1:
            return self._kept[0].of(observation)
        return {part.name: part.of(observation) for part in self._kept}


def _kept(space: Space[Any], names: list[str]) -> list[Part]:
    everything = list(parts(space))
    for name in names:
        if not any(_is_within(part, name) for part in everything):
            known = ", ".join(part.name for part in everything)
            raise ValueError(f"observations have no part {name!r}; there are: {known}")
    kept = [part for part in everything if not any(_is_within(part, name) for name in names)]
    if not kept:
        raise ValueError("no part of the observations would remain")
    return kept


def _is_within(part: Part, name: str) -> bool:
    return part.name == name or part.name.startswith(f"{name}.")
