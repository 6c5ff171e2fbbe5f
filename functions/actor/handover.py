"""Episodes that continue from actor to actor: resumed where a fragment begins, left where it ends.

An episode is left as its environment's state, or as its seed and actions if replays are allowed.
If an episode cannot be resumed, its environment starts a new one. Otherwise every later actor with
this episode would fail, too.

Legend: `B` environments side by side, `S` numbers of a recurrent state.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.environments.building import Env
from shared.environments.spaces import wire_type
from shared.environments.state import replay
from shared.environments.state.keeper import Arrays, StateError
from shared.environments.state.replay import Recorder, Standing
from shared.environments.state.saving import save_state
from shared.environments.state.snapshot import Snapshot, decode, encode, resume
from shared.environments.told_errors import error_text
from shared.policy.recurrent import MAX_STATE

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class SoFar:
    """A running episode, up to its latest step."""

    episode_return: float = 0.0
    length: int = 0
    discounted_return: float = 0.0


class Handover:
    """Takes up and leaves the episodes of some environments."""

    def __init__(
        self,
        envs: Sequence[Env],
        *,
        continues: bool = False,
        replay_steps: int = 0,
        standing: Sequence[Standing | None] = (),
        discount: float = 1.0,
        state: NDArray[np.float32] | None = None,
    ) -> None:
        """Take up no episode yet.

        Args:
            envs: The environments, of one kind.
            continues: Whether other actors will continue the episodes.
            replay_steps: Longest episode to save as its actions; 0 saves states instead.
            standing: Position of each environment; an episode at its position is not repeated.
            discount: Discount factor of the running return, which continues with an episode.
            state: A recurrent policy's state # [B, S], which the policy advances with each step.
                The row of an episode is restored when it is taken up. None without one.
        """
        self._envs = envs
        self.so_far = [SoFar() for _ in envs]
        """The running episode of each environment."""
        self.recurrent = np.zeros((len(envs), 0), np.float32) if state is None else state
        self.discount = discount
        self.saves_states = continues and not replay_steps
        """Whether to call `leave_state` around the last step."""
        self.earlier_returns = [0.0] * len(envs) if continues else []
        """Discounted returns of episodes taken up, before the first step here."""
        self.begun_anew = 0
        """Episodes that started over instead of continuing."""
        self.lost_replays = 0
        """Of these, episodes whose repeated actions gave another episode."""
        self._left = [b""] * len(envs) if continues else []
        self._replay_steps = replay_steps if continues else 0
        self._standing = standing
        self._recorders: list[Recorder] = []
        if self._replay_steps:
            dtype = wire_type(envs[0].observation_space)
            self._recorders = [Recorder(env, dtype=dtype) for env in envs]
        self.steps = [env.step for env in self._recorders or envs]
        """Steps each environment."""

    @property
    def replays(self) -> bool:
        """Whether episodes are left as their actions; then each must begin with a seed."""
        return bool(self._recorders)

    @property
    def num_repeated(self) -> int:
        """Steps that were repeated so far."""
        return sum(recorder.num_repeated for recorder in self._recorders)

    def reset(self, b: int, seed: int | None) -> tuple[object, object]:
        """Begin an episode; only one with a seed can be left as its actions."""
        if self._recorders and seed is not None:
            start: tuple[object, object] = self._recorders[b].reset(seed)
        else:
            start = self._envs[b].reset(seed=seed)
        return start

    def forget(self, b: int) -> None:
        """Count from 0 again: the episode is over, or begins anew."""
        self.so_far[b] = SoFar()

    def take_up(self, b: int, left: bytes) -> object:
        """Take up an episode; return the observation that its next action answers.

        Raises:
            Exception: It cannot be taken up; its environment must be reset.
        """
        if self._recorders:
            standing = self._standing[b] if self._standing else None
            observation = self._recorders[b].take_up(left, standing, discount=self.discount)
            episode = self._recorders[b].episode
            self._remember(b, episode.recurrent_state)
            length = len(episode.actions)
            found = SoFar(episode.episode_return, length, episode.discounted_return)
        else:
            snapshot = decode(left)
            self._remember(b, snapshot.recurrent_state)
            observation = resume(self._envs[b], snapshot)
            found = SoFar(snapshot.episode_return, snapshot.length, snapshot.discounted_return)
        self.so_far[b], self.earlier_returns[b] = found, found.discounted_return
        return observation

    def give_up(self, b: int, why: Exception) -> None:
        """Count an episode that begins anew because it could not be taken up."""
        self.begin_anew(b)
        self.lost_replays += isinstance(why, replay.ReplayError)
        self._tell_begun_anew(b, why)

    def begin_anew(self, b: int) -> None:
        """Let an environment's first episode be a new one."""
        self.forget(b)
        if self.earlier_returns:
            self.earlier_returns[b] = 0.0

    def state(self, b: int) -> Arrays | Exception:
        """Return an environment's state, or the reason why it cannot be saved at this moment."""
        try:
            return save_state(self._envs[b])
        except Exception as error:  # an environment may raise anything, and a broken one will
            return error

    def leave_state(
        self, b: int, state: Arrays | Exception, action: object | None, *, anew: bool
    ) -> None:
        """Leave an episode as a state before its last action, or after its end without one.

        With `anew` the episode is over, and its game with it: nothing is left.
        """
        self._left[b] = b""
        if anew:
            return
        try:
            if isinstance(state, Exception):
                raise state
            if action is None:  # the next episode begins from this state
                so_far, recurrent = SoFar(), np.zeros_like(self.recurrent[b])
            else:
                so_far, recurrent = self.so_far[b], self.recurrent[b]
            numbers = (so_far.episode_return, so_far.length, so_far.discounted_return)
            self._left[b] = encode(Snapshot(state, action, *numbers, recurrent))
        except Exception as error:  # as above, or raised before
            self._tell_begun_anew(b, error)

    def leave(self, running: Iterable[int]) -> tuple[bytes, ...]:
        """Return the saved episode of each environment; an empty one starts over.

        Args:
            running: Environments whose episode has not ended.
        """
        for b in running if self._recorders else ():
            episode, so_far = self._recorders[b].episode, self.so_far[b]
            episode.episode_return = so_far.episode_return
            episode.discounted_return = so_far.discounted_return
            episode.recurrent_state = self.recurrent[b].copy()
            try:
                self._left[b] = replay.encode(episode, longest=self._replay_steps)
            except StateError as error:
                self._tell_begun_anew(b, error)
        return tuple(self._left)

    def _remember(self, b: int, state: NDArray[Any]) -> None:
        """Restore a recurrent state, or raise `StateError` if it is another policy's."""
        size = self.recurrent.shape[1]
        if state.dtype != np.float32 or state.shape != (size,):
            raise StateError(f"a recurrent state {state.shape} was left, the policy has ({size},)")
        if not (np.abs(state) <= MAX_STATE).all():  # nor NaN
            raise StateError(f"a recurrent state was left with a number beyond {MAX_STATE:g}")
        self.recurrent[b] = state

    def _tell_begun_anew(self, b: int, why: Exception) -> None:
        self.begun_anew += 1
        _LOG.warning("an episode begins anew", extra={"env_index": b, "why": error_text(why)})
