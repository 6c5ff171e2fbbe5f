"""The warm environments of a process, with the positions of their episodes.

A process may still have an environment at the point where an episode was saved. Then the episode
continues without repeated steps. Results do not depend on this: a repeated episode is bit-equal.
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from functions.actor.watchdog import CONSTRUCTION, Watchdog
from shared.contracts.rollouts import RolloutTask
from shared.environments.agents import agents_of
from shared.environments.building import Env, make_environment
from shared.environments.state.replay import Standing
from shared.environments.told_errors import error_text

_LOG = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 2.0
"""Longest wait for the close of an environment."""


@dataclass(slots=True, eq=False)
class WarmEnv:
    """One environment."""

    env: Env
    """Its first agent, or the whole environment."""
    standing: Standing | None = None
    """None if its next use begins with a reset."""

    @property
    def agents(self) -> list[Env]:
        """All its agents, in order."""
        return agents_of(self.env)


class WarmEnvironments:
    """Environments of one kind, for consecutive rollouts."""

    def __init__(self, *, most: int, watchdog: Watchdog | None) -> None:
        """Hold no environment yet.

        Args:
            most: How many may wait with an episode, beyond the current rollout's environments.
            watchdog: Notices a constructor that hangs.
        """
        self._most = most
        self._watchdog = watchdog
        self._kind: tuple[str, bool, bool] | None = None
        """The reference as JSON, whether rewards are raw, and whether resets rebuild."""
        self._all: list[WarmEnv] = []
        """Most recently used last."""

    def take(self, task: RolloutTask, starts: Sequence[bytes]) -> list[WarmEnv]:
        """Return a rollout's environments, preferring those at its episodes' positions.

        Args:
            task: The rollout's task, with the kind and number of environments.
            starts: The saved episodes to resume.

        Raises:
            UnsupportedEnvironment: An environment cannot be built.
        """
        # Without wrappers there is no difference, and both modes share their environments.
        raw_rewards = task.mode == "evaluate" and bool(task.env.wrappers)
        # As JSON, because in Python the arguments 1, True and 1.0 are equal.
        kind = (task.env.model_dump_json(), raw_rewards, task.rebuild)
        if self._kind != kind:
            self.close()
            self._kind = kind
        if not self._all:
            self._built(task, raw_rewards)
        num_envs = 1
        if task.mode == "sample":
            num_envs = max(1, task.num_envs // len(self._all[0].agents))
        waiting = {each.standing.place: each for each in self._all if each.standing is not None}
        taken = [waiting.pop(place, None) for place in (*starts, *[b""] * num_envs)[:num_envs]]
        free = [each for each in self._all if each not in taken]
        # First an environment without an episode, then the longest waiting one.
        free.sort(key=lambda each: each.standing is not None)
        room = max(num_envs, self._most) - len(self._all)
        for b, each in enumerate(taken):
            if each is None:
                builds = not free or (free[0].standing is not None and room > 0)
                taken[b] = self._built(task, raw_rewards) if builds else free.pop(0)
                room -= builds
        used = [each for each in taken if each is not None]
        self._all = [each for each in self._all if each not in used] + used
        return used

    def _built(self, task: RolloutTask, raw_rewards: bool) -> WarmEnv:
        watch: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._watchdog is not None:
            watch = self._watchdog.watching(
                task.env.env_id, lambda: len(self._all), awaited=CONSTRUCTION
            )
        with watch:
            env = make_environment(task.env, raw_rewards=raw_rewards, rebuild=task.rebuild)
        self._all.append(WarmEnv(env))
        return self._all[-1]

    def close(self) -> None:
        """Close all of them."""
        envs, self._all, self._kind = self._all, [], None
        for each in envs:
            _close(each.env)


def _close(env: Env) -> None:
    """Close an environment, ignoring errors, which must not fail the next task."""
    env_id = "an environment" if env.spec is None else env.spec.id

    def close() -> None:
        try:
            env.close()
        except Exception as error:  # an environment may raise anything
            _LOG.warning("environment not closed", extra={"env": env_id, "why": error_text(error)})

    closing = threading.Thread(target=close, name="close", daemon=True)
    closing.start()
    closing.join(CLOSE_TIMEOUT_S)
    if closing.is_alive():
        why = f"{env_id}: closing it has not ended for {CLOSE_TIMEOUT_S:g} s"
        _LOG.warning("environment not closed", extra={"env": env_id, "why": why})
