"""Where cells are made: local systems side by side, each training one job at a time.

A job's learner and its actors work in turns, so one job leaves most of a second core idle; several
systems with one actor process each keep all cores busy. PPO's results do not depend on how many
there are: equal seeds give equal policies. Projected times and prices come from measured durations,
which neighbours on the same cores make a little longer.
"""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from benchmarks.environment import Environment, describe_environment
from experiments.experiment import Experiment
from experiments.grid import Cell
from experiments.outcome import JobOutcome, Outcome, job_outcome
from nitro.client.client import NitroClient
from nitro.client.follow import Snapshot, follow
from nitro.errors import EXIT_FAILED, CommandError
from nitro.local.own_environments import actor_variables
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec

Progress = Callable[[Cell, int], None]
"""Told a cell and how many of its rounds are done."""
_LOOK_S = 0.5


class JobFailedError(CommandError):
    """A job did not come to its end; the others may."""


class Lab:
    """Makes the cells of one experiment, several at once; a context manager.

    Args:
        experiment: Whose cells.
        parallel: Jobs at once; None means one per core, or one for experiments that measure times.
        progress: Told about rounds done; called from several threads.
    """

    def __init__(self, experiment: Experiment, *, parallel: int | None, progress: Progress) -> None:
        cores = len(os.sched_getaffinity(0))
        self._experiment = experiment
        self._parallel = 1 if experiment.alone else parallel or cores
        self._processes = max(1, cores // self._parallel)
        self._progress = progress
        self._stack = ExitStack()
        self._leaving = threading.Event()
        self._systems: SimpleQueue[LocalSystem] = SimpleQueue()
        self._num_systems = 0
        self._machine: Environment | None = None
        self._pending: list[Cell] = []

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *error: object) -> None:
        self._leaving.set()
        self._stack.close()

    def add(self, cells: Sequence[Cell]) -> None:
        """Put cells on the list; may be called while outcomes are taken."""
        self._pending += cells

    def outcomes(self) -> Iterator[tuple[Cell, Outcome]]:
        """Yield cells with their outcomes as they are done, until the list is empty.

        Lower seeds are made first, so that a run cut short leaves whole seeds behind.

        Raises:
            CommandError: A job failed, which is said when all others are done; or a process of a
                system ended, at once.
        """
        work = self._experiment.work
        while work is not None and self._pending:
            cell = self._next()
            yield cell, work(cell)
        if not self._pending:
            return
        self._machine = describe_environment()
        failed: list[str] = []
        with ThreadPoolExecutor(self._parallel) as pool:
            try:
                yield from self._pooled(pool, failed)
            except BaseException:
                self._leaving.set()
                raise
        if failed:
            raise CommandError("\n".join(failed), exit_code=EXIT_FAILED)

    def _pooled(
        self, pool: ThreadPoolExecutor, failed: list[str]
    ) -> Iterator[tuple[Cell, Outcome]]:
        running: dict[Future[JobOutcome], Cell] = {}
        while running or self._pending:
            wanted = min(self._parallel, len(running) + len(self._pending))
            if self._num_systems < wanted:
                self._start_system()
            while self._pending and len(running) < self._num_systems:
                cell = self._next()
                running[pool.submit(self._train, cell)] = cell
            # Not for ever, so that Ctrl-C is noticed; not at all while there are systems to start.
            patience_s = _LOOK_S if self._num_systems >= wanted else 0.0
            done, _ = wait(running, timeout=patience_s, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                try:
                    yield cell, future.result()
                except JobFailedError as error:
                    failed.append(str(error))

    def _next(self) -> Cell:
        cell = min(self._pending, key=lambda pending: pending.id.seed)
        self._pending.remove(cell)
        return cell

    def _start_system(self) -> None:
        """Start one more system, in this thread: it ends with it."""
        folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nitro-experiment-"))
        )
        packages = self._experiment.environment_packages
        system = LocalSystem(
            folder,
            processes=self._processes,
            max_concurrency=3000,
            actor_variables=actor_variables(packages) if packages else {},
        )
        self._stack.enter_context(system)
        # Nobody is served after the last cell: no orderly handing back.
        self._stack.callback(system.close, at_once=True)
        self._systems.put(system)
        self._num_systems += 1

    def _train(self, cell: Cell) -> JobOutcome:
        system = self._systems.get()
        try:
            with NitroClient(system.api_url, system.token) as client:
                return self._job(cell, system, client)
        finally:
            self._systems.put(system)

    def _job(self, cell: Cell, system: LocalSystem, client: NitroClient) -> JobOutcome:
        if not isinstance(cell.task, JobSpec) or self._machine is None:
            raise TypeError(f"{cell.id} is no job")
        system.wait_ready()
        # Billed as the runs that are recorded: what a preset says of it has changed since.
        kept = {"warm": cell.task.warm or "provisioned", "learner": cell.task.learner or "gpu"}
        task = cell.task.model_copy(update=kept)
        job_id = client.submit(task).job_id
        start = time.monotonic()
        snapshot = self._followed(cell, job_id, system, client)
        stopped_here = snapshot.job.status == "stopped" and self._has_steps(snapshot)
        if snapshot.job.status != "succeeded" and not stopped_here:
            raise JobFailedError(
                f"{', '.join(map(str, cell.id))}: the job {snapshot.job.status}: "
                f"{snapshot.job.error or snapshot.job.stop_reason}",
                exit_code=EXIT_FAILED,
            )
        outcome = job_outcome(
            snapshot.job,
            snapshot.records,
            client.cost(job_id),
            tuple(client.every_line(job_id)),
            wall_s=time.monotonic() - start,
            machine=self._machine,
        )
        with contextlib.suppress(CommandError):  # its learner may still be writing
            client.delete(job_id)
        return outcome

    def _followed(
        self, cell: Cell, job_id: str, system: LocalSystem, client: NitroClient
    ) -> Snapshot:
        def check() -> None:
            if self._leaving.is_set():
                raise CommandError("left before the job was done")
            system.check()

        last: Snapshot | None = None
        for last in follow(client, job_id, check=check):
            self._progress(cell, last.finished_rounds)
            if last.job.status == "running" and self._has_steps(last):
                with contextlib.suppress(CommandError):  # the next look asks again
                    client.stop(job_id)
        if last is None:
            raise RuntimeError("following a job yields at least once")
        return last

    def _has_steps(self, snapshot: Snapshot) -> bool:
        """Return whether a job has trained on the most steps that the experiment looks at."""
        most_steps = self._experiment.most_steps
        return most_steps is not None and snapshot.job.progress.env_steps >= most_steps
