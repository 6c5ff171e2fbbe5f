"""An experiment: a grid of cells, and findings from their outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.grid import Cell, CellId, Grid, Scale
from experiments.outcome import JobOutcome, Outcome
from experiments.reporting.findings import Findings
from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Message

Done = Mapping[CellId, Any]
"""Outcomes by cell; all of the experiment's `outcome` type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One figure of the paper, or one question of ours."""

    name: str
    """Of its folder of results."""
    title: str
    paper: str
    """Figures of the paper it stands beside."""
    arguments: str = ""
    """Arguments of `nitro experiment run`; empty for its name alone."""
    plan: Callable[[Scale, Done], Grid]
    """Called again after its cells are done, until it has no new ones: cells may depend on
    outcomes."""
    find: Callable[[Scale, Done], Findings]
    seeds: int = 10
    """Unless told otherwise."""
    alone: bool = False
    """Measures times: one job at a time, on all cores."""
    most_steps: int | None = None
    """A job is stopped once it has trained on so many: `find` looks at no later ones."""
    environment_packages: tuple[str, ...] = ()
    """Packages that have its environments, imported when it is planned."""
    task: type[Message] = JobSpec
    outcome: type[Outcome] = JobOutcome
    work: Callable[[Cell], Outcome] | None = None
    """Makes a cell's outcome in this process; None trains the task as a job."""

    @property
    def command(self) -> str:
        """The command that runs it, without its seeds."""
        return f"nitro experiment run {self.arguments or self.name}"
