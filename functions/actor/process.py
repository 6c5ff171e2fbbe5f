"""A process that runs actors' tasks in sequence: as a function, or for the learner."""

import itertools
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NoReturn

from functions.actor.actor import Actor
from functions.actor.errors import RolloutError
from functions.actor.loaded_code import LoadedCode
from functions.actor.settings import Settings
from functions.actor.watchdog import CONSTRUCTION, STEP, Watchdog
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import (
    ActorReport,
    ActorTask,
    DescribeTask,
    PingReport,
    PingTask,
    RolloutTask,
)
from shared.environments.describing import describe
from shared.environments.packages import import_environment_packages


class ActorProcess:
    """The shared objects of a process's tasks: environments, and a connection to the cache."""

    def __init__(
        self,
        settings: Settings,
        cache: TrajectoryCache,
        *,
        end: Callable[[RolloutError], NoReturn],
    ) -> None:
        """Import the custom environments.

        Args:
            settings: The process's settings.
            cache: Cache of policies and results.
            end: Reports a failed rollout and ends the process; from any thread.

        Raises:
            EnvironmentPackageError: An environment cannot be imported.
        """
        if settings.folder is not None:
            os.chdir(settings.folder)
        began_ns = time.time_ns()
        import_environment_packages(settings.environment_packages)
        self._cache = cache
        self._end = end
        self._starts_cold = settings.starts_cold
        self._code = LoadedCode(settings.environment_packages, began_ns=began_ns)
        self._watchdog = Watchdog(timeout_s=settings.step_timeout_s, give_up=end, ends_process=True)
        self._actor = Actor(
            cache, watchdog=self._watchdog, kept_environments=settings.kept_environments
        )
        self._begun: set[tuple[str, str]] = set()
        """Jobs of this process's rollouts, each with its lease."""
        self._turns = itertools.count()

    def begin(self) -> bool:
        """Begin a turn; return whether the process was started for it."""
        return next(self._turns) == 0 and self._starts_cold

    def do(
        self, task: ActorTask, *, cold_start: bool
    ) -> PingReport | EnvironmentSpec | ActorReport:
        """Do a task. After a failed rollout, report it and end the process."""
        if isinstance(task, PingTask):
            self._cache.connect()  # AWS drops connections that are idle for minutes
            time.sleep(task.hold_s)
            return PingReport(cold_start=cold_start)
        self._require_present_code(task)
        try:
            if isinstance(task, DescribeTask):
                return self._described(task)
            return self._actor.run(task, cold_start=cold_start)
        except RolloutError as error:
            self._end(error)
        finally:
            self._code.note()

    def _require_present_code(self, task: DescribeTask | RolloutTask) -> None:
        """Leave the first task of a job to a new process if this process's code is old."""
        tenure = (task.job_id, task.lease_hash) if isinstance(task, RolloutTask) else None
        if tenure not in self._begun and self._code.has_changed():
            os._exit(os.EX_TEMPFAIL)
        if tenure is not None:
            self._begun.add(tenure)

    def _described(self, task: DescribeTask) -> EnvironmentSpec:
        def watch(awaited: str) -> AbstractContextManager[None]:
            return self._watchdog.watching(task.env.env_id, lambda: None, awaited=awaited)

        return describe(
            task.env, while_building=watch(CONSTRUCTION), while_trying=lambda: watch(STEP)
        )
