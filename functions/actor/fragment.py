"""The arrays of a fragment while its environments are being stepped.

An episode with a non-finite observation or reward is *broken* and must not be learned from. It is
detected at its end, or at the fragment's, so that steps stay fast. `restart` resets the episode's
steps; the caller fills them again.

Legend: `T` steps, `B` environments side by side, `F` truncated episodes, `E` finished episodes, `S`
numbers of a recurrent state.
See `shared.trajectory.trajectory` for the meaning of the arrays at the end of an episode.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from functions.actor.errors import RolloutError
from functions.actor.finite import first_not_finite
from functions.actor.handover import Handover
from functions.actor.seeds import env_seed
from shared.environments.agents import Agent, choose
from shared.environments.building import Env
from shared.environments.games import FinishedGame, games_of
from shared.environments.spaces import checked_observation, wire_type

Observations = NDArray[Any]  # float32 or uint8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """One finished episode, or the start of a fragment that resumes an episode."""

    finished: Sequence[FinishedGame]
    """The episode itself. If episodes are lives: the game that ended with it, or before the next
    life, if any."""
    final_observation: Observations | None  # [*obs]; None if it terminated


class Fragment:
    """Steps `B` environments side by side for `T` steps and records their results."""

    def __init__(
        self,
        num_steps: int,
        envs: Sequence[Env],
        *,
        seed: int,
        horizon: int | None = None,
        handover: Handover | None = None,
    ) -> None:
        """Take no step yet.

        Args:
            num_steps: Steps of each environment (T).
            envs: The environments, of one kind.
            seed: Determines their initial states.
            horizon: Steps after a reset at which an episode is cut; None leaves it to the
                environment.
            handover: Of these environments; its policy's recurrent state is cleared where an
                episode begins. None if no episode continues.
        """
        space = envs[0].observation_space
        self._space = space
        self._shape: tuple[int, ...] = space.shape or ()  # [*obs]
        dtype = wire_type(space)
        self._is_bytes = dtype is np.uint8
        steps = (num_steps, len(envs))
        self.observation: Observations = np.zeros(
            (num_steps + 1, len(envs), *self._shape), dtype
        )  # [T+1, B, *obs]
        self.reward = np.zeros(steps, np.float32)  # [T, B]
        self.terminated = np.zeros(steps, np.bool_)  # [T, B]
        self.truncated = np.zeros(steps, np.bool_)  # [T, B]
        self.num_done = 0
        """Steps taken so far, counted along T."""
        self.broken: list[int] = []
        """Environments whose latest episode must be sampled again, without repeats."""
        self._seed = seed
        self._horizon = math.inf if horizon is None else horizon
        self.handover = handover or Handover(envs)
        self._discount = self.handover.discount
        self._leaves_at = num_steps - 1 if self.handover.saves_states else num_steps
        self._num_steps = num_steps
        self._num_resets = 0
        self._envs = envs
        self._steps = self.handover.steps
        self._so_far = self.handover.so_far
        self._games = [games_of(env) for env in envs]
        self._act_together = isinstance(envs[0].unwrapped, Agent)
        self._starts = [0] * len(envs)  # first step of the current episode
        self.first_state = self.handover.recurrent.copy()
        """Recurrent states before the first step, [B, S]."""
        self._ended: dict[tuple[int, int], _Ended] = {}  # by (t, b)

    @property
    def final_observation(self) -> Observations:
        """Last observations of truncated episodes so far, [F, *obs] in (t, b) order."""
        finals = [end.final_observation for end in self._in_order()]
        kept = [final for final in finals if final is not None]
        return np.array(kept, self.observation.dtype).reshape((len(kept), *self._shape))

    @property
    def episode_returns(self) -> list[float]:
        """Undiscounted returns of the episodes finished so far, in (t, b) order."""
        return [game.score for end in self._in_order() for game in end.finished]

    @property
    def episode_lengths(self) -> list[int]:
        """Lengths of these episodes."""
        return [game.length for end in self._in_order() for game in end.finished]

    @property
    def progress(self) -> tuple[int, ...]:
        """A value that changes with every step and every reset of any environment."""
        lengths = (so_far.length for so_far in self._so_far)
        return (self.num_done, self._num_resets, self.handover.num_repeated, *lengths)

    def leave(self) -> tuple[bytes, ...]:
        """Return the saved episode of each environment at the fragment's end; empty starts over."""
        return self.handover.leave(
            b for b, first in enumerate(self._starts) if first < self._num_steps
        )

    def start(self, snapshots: Sequence[bytes] = ()) -> None:
        """Resume every saved episode, and start the others from the seed.

        The first environment is reset with the seed itself, so that a rollout of one environment
        can be repeated by hand.
        """
        for b in range(len(self._envs)):
            if not (b < len(snapshots) and snapshots[b] and self._taken_up(b, snapshots[b])):
                self._reset(0, b, seed=env_seed(self._seed, b))
        self.first_state = self.handover.recurrent.copy()

    def _taken_up(self, b: int, left: bytes) -> bool:
        """Resume an episode; return False if it must begin anew."""
        try:
            self.observation[0, b] = self._first((self.handover.take_up(b, left), None))
        except Exception as error:  # an environment may raise anything
            self.handover.give_up(b, error)
            return False
        if not self.handover.replays:
            self._ended[-1, b] = _Ended(finished=self._games_over(b), final_observation=None)
        return True

    def step(self, actions: Iterable[object]) -> None:
        """Step every environment with its action; reset ended ones, except at the last step."""
        t = self.num_done
        if self._act_together:
            actions = [*actions]
            choose(self._envs, actions)
        for b, action in enumerate(actions):
            self.step_one(t, b, action)
        self.num_done = t + 1

    def step_one(self, t: int, b: int, action: object) -> None:
        """Take step `t` of environment `b`."""
        leaves = t == self._leaves_at
        if leaves:
            # A copy of the action: a step may change it in place.
            before, taken = self.handover.state(b), copy.copy(action)
        try:
            observation, reward, terminated, truncated, _ = self._steps[b](action)
        except Exception as error:
            if isinstance(error, RolloutError) or self._first_broken(b, t) is None:
                raise
            self.broken.append(b)  # it failed because it was broken before
            return
        if getattr(observation, "shape", None) != self._shape or self._is_bytes:
            observation = checked_observation(observation, self._space)
        self.reward[t, b] = reward
        so_far, number = self._so_far[b], float(reward)
        so_far.episode_return += number
        so_far.length += 1
        so_far.discounted_return = self._discount * so_far.discounted_return + number
        self.observation[t + 1, b] = observation
        cut = so_far.length >= self._horizon and not (terminated or truncated)
        if leaves:
            ended = bool(terminated or truncated)
            state = self.handover.state(b) if ended else before
            self.handover.leave_state(b, state, None if ended else taken, anew=cut)
        if terminated or truncated or cut:
            self.terminated[t, b] = terminated
            self.truncated[t, b] = truncated or cut
            self._end_episode(t, b, anew=cut)

    def restart(self, b: int) -> int:
        """Restart the latest episode of environment `b`; return its first step.

        Raises:
            RolloutError: Other agents share the episode.
        """
        if self._act_together:
            raise RolloutError(f"{self.what_broke(b)}, and no agent can begin its episode alone")
        first = self._starts[b]
        self.terminated[first : self.num_done, b] = False
        self.truncated[first : self.num_done, b] = False
        self.handover.forget(b)
        if first == 0:
            self.handover.begin_anew(b)
            self.first_state[b] = 0.0
        # A number beyond any step, and different for every reset, so no other start has this seed.
        seed = env_seed(self._seed, b, self._num_steps + self._num_resets)
        self._reset(first, b, seed=seed if self.handover.replays else None)
        return first

    def is_last_broken(self) -> bool:
        """Check whether any unfinished episode at the fragment's end is broken."""
        for b in range(len(self._envs)):
            if self._first_broken(b, self.num_done) is not None:
                self.broken.append(b)
        return bool(self.broken)

    def what_broke(self, b: int) -> str:
        """Describe the fault in the latest episode of environment `b`."""
        step, name = self._first_broken(b, self.num_done) or (self.num_done, "observation")
        # Counted from 1; an observation is that of the step before the one that acts on it.
        return f"{name} is not finite at step {step + (name == 'reward')}"

    def before_broken(self, b: int) -> slice:
        """Return the steps of the latest episode of `b` whose observations are all finite."""
        step, name = self._first_broken(b, self.num_done) or (self.num_done, "observation")
        return slice(self._starts[b], step + (name == "reward"))

    def _end_episode(self, t: int, b: int, *, anew: bool) -> None:
        """Count an episode and begin the next; `anew` if its game would otherwise continue."""
        if self._first_broken(b, t + 1) is not None:
            self.broken.append(b)
            return
        final = None if self.terminated[t, b] else self.observation[t + 1, b].copy()
        so_far = self._so_far[b]
        whole = FinishedGame(score=so_far.episode_return, length=so_far.length)
        finished = [whole] if self._games[b] is None else self._games_over(b)
        self._starts[b] = t + 1
        self.handover.forget(b)
        if t + 1 < self._num_steps:
            seed = env_seed(self._seed, b, t + 1) if anew or self.handover.replays else None
            self._reset(t + 1, b, seed=seed)
            finished += self._games_over(b)
        self._ended[t, b] = _Ended(finished=finished, final_observation=final)

    def _reset(self, t: int, b: int, *, seed: int | None) -> None:
        """Begin an episode at step `t`; a recorded episode has a seed."""
        self.observation[t, b] = self._first(self.handover.reset(b, seed))
        self.handover.recurrent[b] = 0.0

    def _games_over(self, b: int) -> list[FinishedGame]:
        """Return the games that ended in environment `b` since the last call."""
        games = self._games[b]
        return [] if games is None else games.take_finished()

    def _first_broken(self, b: int, end: int) -> tuple[int, str] | None:
        """Return the step and the name of the first non-finite value in the latest episode.

        The search ends at step `end`. A reward counts at its own step, an observation at the step
        that acts on it.
        """
        first = self._starts[b]
        seen: dict[str, NDArray[Any]] = {"reward": self.reward[first:end, b]}
        if not self._is_bytes:
            seen["observation"] = self.observation[first : end + 1, b]
        return first_not_finite(seen, start=first)

    def _first(self, start: tuple[object, object]) -> Observations:
        """Return the observation in the result of a reset."""
        self._num_resets += 1
        return checked_observation(start[0], self._space)

    def _in_order(self) -> list[_Ended]:
        return [self._ended[place] for place in sorted(self._ended)]
