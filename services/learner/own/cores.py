"""The learner's own cores: its actor processes across jobs."""

from collections.abc import Callable, Mapping
from typing import Self

from services.learner.own.actors import OwnActors
from services.learner.own.rollouts import OwnRollouts, num_own_actors
from shared.cache.client import TrajectoryCache
from shared.cache.connect_token import AwsCredentials
from shared.contracts.jobs import Job
from shared.service.cores import usable_cores

_KEPT_ENVIRONMENTS = 16
"""Most environments that a process keeps so that their episodes need no repeat."""


class OwnCores:
    """Creates a job's actor processes, and keeps them for the next job.

    Args:
        connect_cache: Returns a client of the cache.
        most: Most processes; None means one for each core.
        ahead: Whether to start them before the first job.
        variables: Their settings, beyond this process's environment.
        credentials: Return AWS credentials for the cache; None where it needs none.
    """

    def __init__(
        self,
        *,
        connect_cache: Callable[[], TrajectoryCache],
        most: int | None,
        ahead: bool = False,
        variables: Mapping[str, str],
        credentials: Callable[[], AwsCredentials] | None = None,
    ) -> None:
        self._connect_cache = connect_cache
        self._most = most
        self._ahead = ahead
        self._variables = {"NITRO_KEPT_ENVIRONMENTS": str(_KEPT_ENVIRONMENTS), **variables}
        self._credentials = credentials
        self._actors: OwnActors | None = None

    def __enter__(self) -> Self:
        if self._ahead:
            self._started(usable_cores() if self._most is None else self._most)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        if self._actors is not None:
            self._actors.close()
        self._actors = None

    def rollouts(self, job: Job, lease_id: str) -> OwnRollouts | None:
        """Return the runner of a job's rollouts on own cores; None without own actors."""
        num = num_own_actors(job.spec, most=self._most)
        if not num:
            return None
        return OwnRollouts(job, lease_id, self._started(num), self._connect_cache())

    def _started(self, num: int) -> OwnActors:
        """Return this many actors, reusing the running ones if they suffice."""
        if self._actors is None or self._actors.most < num:
            self.close()
            made = OwnActors(num, variables=self._variables, credentials=self._credentials)
            self._actors = made
        self._actors.num = num
        return self._actors
