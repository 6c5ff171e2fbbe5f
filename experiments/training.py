"""The jobs of an experiment as a sweep: side by side on a local system, and resumed if cut short.

A job's learner and its actors work in turns, so one job leaves most of a second core idle. PPO's
results do not depend on how many jobs there are: equal seeds give equal policies. The sweep lies
beside the results until all jobs are done.
"""

import shutil
from collections.abc import Callable

from rich.console import Console

from benchmarks.environment import describe_environment
from experiments.experiment import Experiment
from experiments.grid import Cell, CellId, Grid
from experiments.outcome import JobOutcome, job_outcome
from experiments.store import Store
from nitro.cli.interrupts import Interrupts
from nitro.client.client import NitroClient
from nitro.client.follow import RoundFeed
from nitro.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from nitro.local.own_environments import actor_variables
from nitro.local.system import LocalSystem
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.rows import Row
from nitro.sweeps.runner import Runner
from nitro.sweeps.spec import SweepSpec
from nitro.sweeps.view import sweep_view
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.service.cores import usable_cores

_MAX_CONCURRENCY = 3000
"""Of the local system: more than the largest rounds of any experiment."""


class Training:
    """Trains every job of an experiment that has no outcome yet.

    Args:
        experiment: Whose.
        store: Takes the outcomes.
        planned: Returns the experiment's grid; called again when there are new outcomes.
        done: Outcomes by cell; those made here are added.
        parallel: Jobs at once; None for one a core, or one where times are measured.
        console: Where it is shown.
    """

    def __init__(
        self,
        experiment: Experiment,
        store: Store,
        *,
        planned: Callable[[], Grid],
        done: dict[CellId, JobOutcome],
        parallel: int | None,
        console: Console,
    ) -> None:
        self._experiment = experiment
        self._store = store
        self._planned = planned
        self._done = done
        self._parallel = 1 if experiment.alone else parallel or usable_cores()
        self._console = console
        self._machine = describe_environment()
        self._folder = SweepFolder(store.folder, "jobs")
        self._cells: dict[CellId, Cell] = {}
        self._seen = -1
        """Outcomes that the plan has seen."""

    def run(self) -> None:
        """Train all jobs to their ends.

        Raises:
            CommandError: It was interrupted, or jobs failed, which is said when all are done.
        """
        if not self._missing():
            return
        self._begin()
        packages = self._experiment.environment_packages
        with (
            Interrupts() as interrupts,
            LocalSystem(
                self._folder.path,
                learners=self._parallel,
                max_concurrency=_MAX_CONCURRENCY,
                actor_variables=actor_variables(packages) if packages else {},
            ) as system,
            NitroClient(system.api_url, system.token) as client,
            sweep_view(self._console, budget_usd=None) as view,
            self._folder.held(),
        ):
            system.wait_ready()
            interrupts.armed = True
            rows = Runner(
                client,
                self._folder,
                places=self._parallel,
                budget_usd=None,
                plan=self._plan,
                view=view,
                finished=lambda row, job: self._keep(client, row, job),
                check=system.check,
                asked=lambda: interrupts.asked,
                pause=interrupts.pause,
            ).run()
            # Nobody is served any more: no orderly handing back.
            system.close(at_once=True)
        if interrupts.asked:
            raise CommandError("interrupted; the same command goes on", exit_code=EXIT_INTERRUPTED)
        if failed := [f"{row.key}: {row.reason}" for row in rows if row.status == "failed"]:
            raise CommandError("\n".join(failed), exit_code=EXIT_FAILED)
        shutil.rmtree(self._folder.path.parent)

    def _missing(self) -> list[Cell]:
        """Return the cells without an outcome; lower seeds first, to leave whole seeds behind."""
        cells = [cell for cell in self._planned().cells if cell.id not in self._done]
        self._cells |= {cell.id: cell for cell in cells}
        return sorted(cells, key=lambda cell: cell.id.seed)

    def _begin(self) -> None:
        """Begin a sweep, or find the one that was cut short; one of another plan is left."""
        if self._folder.exists():
            rows = self._folder.rows()
            wanted = {cell.id: _spec(cell) for cell in self._cells.values()}
            left = [row for row in rows if _cell_id(row) not in self._done]
            if all(
                row.status != "finished" and row.spec == wanted.get(_cell_id(row)) for row in left
            ):
                return
            shutil.rmtree(self._folder.path)
        environments = dict.fromkeys(cell.id.env_id for cell in self._cells.values())
        spec = SweepSpec(name=self._folder.name, environments=tuple(environments))
        self._folder.begin(Asked(spec=spec), [])

    def _plan(self, rows: list[Row]) -> list[Row]:
        """Return the rows there are to be now: outcomes may bring others."""
        if self._seen == len(self._done):
            return rows
        self._seen = len(self._done)
        known = {_cell_id(row) for row in rows}
        missing = [cell for cell in self._missing() if cell.id not in known]
        return [*rows, *map(self._row, missing)]

    def _row(self, cell: Cell) -> Row:
        condition, env_id, seed = cell.id
        return Row(
            env_id=env_id,
            setting=condition,
            seed=seed,
            spec=_spec(cell),
            end_steps=self._experiment.most_steps,
        )

    def _keep(self, client: NitroClient, row: Row, job: Job) -> None:
        """Store the outcome of a job that is done, unless it was before the command was killed."""
        cell_id = _cell_id(row)
        if cell_id in self._done:
            return
        outcome = job_outcome(
            job,
            RoundFeed(client, job.job_id).fetch(),
            client.cost(job.job_id),
            tuple(client.every_line(job.job_id)),
            wall_s=(job.finished_at or 0.0) - (job.started_at or 0.0),
            machine=self._machine,
        )
        self._store.write(self._cells[cell_id], outcome)
        self._done[cell_id] = outcome


def _cell_id(row: Row) -> CellId:
    return CellId(row.setting, row.env_id, row.seed)


def _spec(cell: Cell) -> JobSpec:
    """Return a cell's job, billed as the runs that are recorded: presets have changed since."""
    if not isinstance(cell.task, JobSpec):
        raise TypeError(f"{cell.id} is no job")
    kept = {"warm": cell.task.warm or "provisioned", "learner": cell.task.learner or "gpu"}
    return cell.task.model_copy(update=kept)
