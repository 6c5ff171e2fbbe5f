"""The learner's own cores: which actor processes there are, from job to job."""

from collections.abc import Callable, Mapping
from typing import Self

from services.learner.own.actors import OwnActors
from services.learner.own.rollouts import OwnRollouts, num_own_actors
from shared.cache.client import TrajectoryCache
from shared.cache.connect_token import AwsCredentials
from shared.contracts.jobs import Job

_MOST_KEPT = 16
"""Environments that one process keeps with their episodes, at most: each takes memory."""


class OwnCores:
    """Makes a job's actor processes, and keeps them for the next job of their size.

    Args:
        connect_cache: Returns a client of the cache.
        most: Most processes; None means one for each core.
        variables: Their settings, beyond this process's environment.
        credentials: Return AWS credentials for the cache; None where it needs none.
    """

    def __init__(
        self,
        *,
        connect_cache: Callable[[], TrajectoryCache],
        most: int | None,
        variables: Mapping[str, str],
        credentials: Callable[[], AwsCredentials] | None = None,
    ) -> None:
        self._connect_cache = connect_cache
        self._most = most
        self._variables = variables
        self._credentials = credentials
        self._actors: OwnActors | None = None
        self._size = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        if self._actors is not None:
            self._actors.close()
        self._actors, self._size = None, (0, 0)

    def rollouts(self, job: Job, lease_id: str) -> OwnRollouts | None:
        """Return what runs a job's rounds here; None where nothing may or can."""
        spec = job.spec
        num = num_own_actors(spec, most=self._most)
        if not num:
            return None
        streams = -(-spec.actors.max * spec.envs_per_actor // num)
        size = (num, min(_MOST_KEPT, max(spec.envs_per_actor, streams)))
        if self._actors is None or self._size != size:
            self.close()
            kept = {"NITRO_KEPT_ENVIRONMENTS": str(size[1])}
            self._actors = OwnActors(
                num, variables={**kept, **self._variables}, credentials=self._credentials
            )
            self._size = size
        return OwnRollouts(job, lease_id, self._actors, self._connect_cache())
