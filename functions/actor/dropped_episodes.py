"""Dropped episodes: those with a non-finite observation or reward.

Their steps are sampled again after a reset with new action noise, so the trajectory keeps its size.
Everything follows from the task's seed, so a repeated rollout is identical. An environment that
repeatedly breaks its episodes is given up.
"""

import logging
from collections.abc import Callable, Iterable

from functions.actor.errors import DIVERGED, RolloutError
from functions.actor.finite import first_not_finite
from functions.actor.fragment import Fragment
from functions.actor.seeds import noise_generator
from shared.policy.distributions import Action
from shared.policy.fragment_sampler import FragmentSampler

_LOG = logging.getLogger(__name__)

MAX_DROPPED_EPISODES = 10
"""Episodes that a rollout may drop beyond the number it has finished."""


class DroppedEpisodes:
    """Counts a fragment's dropped episodes and resamples their steps."""

    def __init__(
        self,
        env_id: str,
        fragment: Fragment,
        sampler: FragmentSampler,
        *,
        seed: int,
        translate: Callable[[Action], Iterable[object]],
    ) -> None:
        """Start with no dropped episodes.

        Args:
            env_id: For messages.
            fragment: Knows the broken episodes.
            sampler: Samples the fragment's actions.
            seed: The task's seed.
            translate: Maps one environment's sampled action [1, *act] to the environment's own.
        """
        self._env_id = env_id
        self._fragment = fragment
        self._sampler = sampler
        self._seed = seed
        self._translate = translate
        self.count = 0
        """Episodes dropped so far."""

    def fill_again(self) -> None:
        """Resample the steps of every broken episode until none is broken.

        Raises:
            RolloutError: Too many episodes were broken; the message describes the last one. Or an
                action was the first value that was not finite.
        """
        broken = self._fragment.broken
        while broken:
            self._drop(broken[0])
            self._repeat(broken.pop(0))

    def _drop(self, b: int) -> None:
        self._check_actions(b)
        why = self._fragment.what_broke(b)
        self.count += 1
        if self.count > MAX_DROPPED_EPISODES + len(self._fragment.episode_returns):
            raise RolloutError(
                f"{self._env_id}: {why}, as in {self.count - 1} episodes of this rollout that were "
                "dropped and sampled again; rollout dropped"
            )
        _LOG.warning("episode dropped", extra={"env_id": self._env_id, "env_index": b, "why": why})

    def _check_actions(self, b: int) -> None:
        """Raise if the policy's own actions were not finite, instead of blaming the environment."""
        steps = self._fragment.before_broken(b)
        action = {"action": self._sampler.action[steps, b]}  # [steps, *act]
        first = first_not_finite(action, start=steps.start)
        if first is not None:
            diverged = DIVERGED.format(step=first[0] + 1)
            raise RolloutError(f"{self._env_id}: {diverged}; rollout dropped")

    def _repeat(self, b: int) -> None:
        fragment, sampler = self._fragment, self._sampler
        first, end = fragment.restart(b), fragment.num_done
        generator = noise_generator(self._seed, dropped_episodes=self.count)
        sampler.redraw(slice(first, end), b, generator)
        row = slice(b, b + 1)
        for t in range(first, end):
            sampler.act_again(t, b, fragment.observation[t, row])
            (action,) = self._translate(sampler.action[t, row, ...])
            fragment.step_one(t, b, action)
            if b in fragment.broken:
                return
