"""Parallel environments in PettingZoo's sense: one policy plays all agents.

To the rest of Nitro each agent is an environment of its own, with its own column of the fragment.
A step needs the actions of all agents, so `choose` sets them first. A dead agent sees zeros and
earns nothing until the episode ends for all agents, as with SuperSuit's `black_death`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple

from shared.environments.parts import MASK
from shared.environments.spaces import UnsupportedEnvironment, num_choices

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions
_Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class ParallelEnv(Protocol):
    """The methods of `pettingzoo.ParallelEnv` that are used here."""

    agents: list[str]
    """Living agents."""
    possible_agents: list[str]

    def observation_space(self, agent: str, /) -> Space[Any]:
        """Return the space of an agent's observations."""
        ...

    def action_space(self, agent: str, /) -> Space[Any]:
        """Return the space of an agent's actions."""
        ...

    def reset(self, *, seed: int | None, options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        ...

    def step(self, actions: dict[str, Any], /) -> tuple[dict[str, Any], ...]:
        """Return observations, rewards, terminations, truncations and infos by agent."""
        ...

    def render(self) -> Any:
        """Draw."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class _Game:
    """A parallel environment, and the results of its newest reset or step not yet fetched."""

    def __init__(self, env: ParallelEnv) -> None:
        self.env = env
        self._starts: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._choices: dict[str, Any] = {}
        self._steps: dict[str, _Step] = {}
        self._dead: set[str] = set()
        self._is_closed = False

    def start(self, agent: str, *, seed: int | None, options: Any) -> tuple[Any, dict[str, Any]]:
        """Return an agent's first observation; the first call begins the episode for all agents."""
        if agent not in self._starts:
            self._dead = set()
            observations, infos = self.env.reset(seed=seed, options=options)
            self._starts = {
                name: (self._seen(name, observations), infos.get(name, {}))
                for name in self.env.possible_agents
            }
            # Keep the previous episode's last step: other agents fetch it after this reset.
            self._choices = {}
        return self._starts.pop(agent)

    def choose(self, agent: str, action: Any) -> None:
        """Set an agent's action in the next step."""
        self._choices[agent] = action

    def step(self, agent: str, action: Any) -> _Step:
        """Return an agent's results of a step; the first call takes the step for all agents.

        Agents without a chosen action take the action given here.
        """
        if agent not in self._steps:
            self._starts = {}
            alive = [*self.env.agents]  # a step may change the game's own list
            actions = {name: self._choices.get(name, action) for name in alive}
            observations, rewards, terminated, truncated, infos = self.env.step(actions)
            self._choices = {}
            self._dead |= {name for name in alive if terminated.get(name, False)}
            # Not every game takes agents that have ended off its list.
            over = not self.env.agents or all(
                name in self._dead or truncated.get(name, False) for name in alive
            )
            acting = set() if over else set(self.env.agents) - self._dead
            self._steps = {
                name: (
                    self._seen(name, observations),
                    rewards.get(name, 0.0),
                    over and name in self._dead,
                    over and name not in self._dead,
                    infos.get(name, {}) if name in acting else self._nothing_forbidden(name),
                )
                for name in self.env.possible_agents
            }
        return self._steps.pop(agent)

    def _nothing_forbidden(self, agent: str) -> dict[str, Any]:
        """Return the info of a finished agent: with discrete actions, a mask that forbids none."""
        size = num_choices(self.env.action_space(agent))
        return {} if size is None else {MASK: np.ones(size, np.int8)}

    def close(self) -> None:
        """Close the environment, once."""
        if not self._is_closed:
            self._is_closed = True
            self.env.close()

    def _seen(self, agent: str, observations: dict[str, Any]) -> Any:
        if agent in observations and agent not in self._dead:
            return observations[agent]
        return _nothing(self.env.observation_space(agent))


class Agent(gymnasium.Env[Any, Any]):
    """One agent of a parallel environment."""

    others: tuple[Env, ...] = ()
    """The other agents in order, each in the same wrappers; set on the first agent only."""

    def __init__(self, game: _Game, name: str) -> None:
        self.name = name
        self.observation_space = game.env.observation_space(name)
        self.action_space = game.env.action_space(name)
        self.metadata = getattr(game.env, "metadata", {})
        self.render_mode = getattr(game.env, "render_mode", None)
        self._game = game

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode for all agents, or return the start of the episode already begun."""
        super().reset(seed=seed)
        return self._game.start(self.name, seed=seed, options=options)

    def step(self, action: Any) -> _Step:
        """Return this agent's results of the step of all agents; see `choose`."""
        return self._game.step(self.name, action)

    def choose(self, action: Any) -> None:
        """Set the action of the next step."""
        self._game.choose(self.name, action)

    def render(self) -> Any:
        """Draw all agents."""
        return self._game.env.render()

    def close(self) -> None:
        """Close the environment of all agents."""
        self._game.close()

    def remaining(self) -> Iterable["Agent"]:
        """Yield the other agents, bare."""
        for name in self._game.env.possible_agents:
            if name != self.name:
                yield Agent(self._game, name)


def first_agent(env_id: str, made: Any) -> Agent:
    """Return the first agent of a parallel environment.

    Raises:
        UnsupportedEnvironment: It is not a parallel environment, or its agents' spaces differ.
    """
    if hasattr(made, "agent_iter"):
        raise UnsupportedEnvironment(
            f"env_id {env_id!r}: its agents act in turns; where they may act at once, "
            "pettingzoo.utils.conversions.aec_to_parallel makes it a parallel environment"
        )
    if not (hasattr(made, "possible_agents") and callable(getattr(made, "action_space", None))):
        raise UnsupportedEnvironment(
            f"env_id {env_id!r} makes {type(made).__name__}, which is neither a gymnasium.Env nor "
            "a parallel environment of PettingZoo"
        )
    first, *others = made.possible_agents
    for name in others:
        for kind in ("observation_space", "action_space"):
            ours, theirs = (getattr(made, kind)(agent) for agent in (first, name))
            if ours != theirs:
                raise UnsupportedEnvironment(
                    f"env_id {env_id!r}: one policy plays all agents, but the {kind} of {first} is "
                    f"{ours} and that of {name} {theirs}; SuperSuit's pad_observations_v0 and "
                    "pad_action_space_v0 make them alike"
                )
    return Agent(_Game(made), first)


def agents_of(env: Env) -> list[Env]:
    """Return all agents of a parallel environment in order; of any other, the environment alone."""
    bare = env.unwrapped
    return [env, *bare.others] if isinstance(bare, Agent) else [env]


def choose(envs: Sequence[Env], actions: Sequence[object]) -> None:
    """Set the agents' next actions, before the first agent steps."""
    for env, action in zip(envs, actions, strict=True):
        chosen: Any = action
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, gymnasium.ActionWrapper):
                chosen = env.action(chosen)
            env = env.env
        assert isinstance(env, Agent), "only agents have their actions chosen"
        env.choose(chosen)


def _nothing(space: Space[Any], name: str = "") -> Any:
    """Return the observation of a dead agent: zeros, and a mask that forbids nothing."""
    if isinstance(space, Dict):
        return {key: _nothing(part, key) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_nothing(part) for part in space.spaces)
    if isinstance(space, Discrete | MultiDiscrete):
        return space.start
    return np.full(space.shape or (), int(name == MASK), space.dtype)
