"""One run of a framework: what it is told, what came of it, and how it is made."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat

from benchmarks.environment import describe_environment
from experiments.frameworks.telling import Framework, FrameworkTask
from experiments.grid import Cell
from experiments.outcome import Outcome
from nitro.errors import EXIT_FAILED, CommandError
from nitro.local.system import LocalSystem
from shared.contracts.message import Count, Message, NonNegativeFloat

_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENTS: Mapping[Framework, str] = {
    "stable_baselines3": ".venv-sb3",
    "rllib": ".venv-rllib",
    "msrl": ".venv-msrl",
}
_HOW_TO_INSTALL: Mapping[Framework, str] = {"msrl": "make msrl-install"}
_TAIL_CHARS = 2000
_START_S = 900.0
_PATIENT = {
    "scaler": {"NITRO_LEASE_TTL_S": "300"},
    "emulator": {"NITRO_EMULATOR_INIT_TIMEOUT_S": "900"},
}
"""Runs of hours go on behind other work, which may leave them no processor time for minutes."""


class FrameworkEvaluation(Message):
    """Episodes of the deterministic policy, and what it had taken to get there."""

    env_steps: Count
    returns: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    cpu_s: NonNegativeFloat
    """Of the framework's process: its updates, and its own sampler if that is used."""
    cost_usd: NonNegativeFloat
    """Of Nitro's job, as its ledger says: by the clock of a machine that others use, evaluations
    included. Summaries go by `experiments.frameworks.pricing` instead."""

    @property
    def mean_return(self) -> float:
        """Over the episodes."""
        return fmean(self.returns)


class FrameworkOutcome(Outcome):
    """One run."""

    evaluations: Annotated[tuple[FrameworkEvaluation, ...], Field(min_length=1)]
    """In order, before any training and after all of it."""

    @property
    def last(self) -> FrameworkEvaluation:
        """After all training."""
        return self.evaluations[-1]

    def return_after(self, steps: float) -> float:
        """Return the mean return after so many steps, on straight lines between evaluations."""
        taken = [e.env_steps for e in self.evaluations]
        return float(np.interp(steps, taken, [e.mean_return for e in self.evaluations]))

    def return_at_usd(self, usd: float, price: Callable[[FrameworkEvaluation], float]) -> float:
        """Return the mean return after so much money, likewise."""
        spent = [price(e) for e in self.evaluations]
        return float(np.interp(usd, spent, [e.mean_return for e in self.evaluations]))


def interpreter(framework: Framework) -> Path:
    """Return the interpreter that has a framework.

    Raises:
        CommandError: It is not installed.
    """
    python = _ROOT / _ENVIRONMENTS[framework] / "bin" / "python"
    if not python.is_file():
        how = _HOW_TO_INSTALL.get(framework, "make integrations-install")
        raise CommandError(f"{framework} is not installed in {python.parents[1]}: {how}")
    return python


def make(cell: Cell) -> FrameworkOutcome:
    """Make one run, in the framework's own interpreter.

    Raises:
        CommandError: The framework is not installed, or its script failed.
    """
    task = cell.task
    if not isinstance(task, FrameworkTask):
        raise TypeError(f"{cell.id} is no task of a framework")
    machine = describe_environment()
    told = task.model_dump()
    with _actors(task) as access:
        lines = _run(interpreter(task.framework), task.framework, told | access)
    evaluations = tuple(FrameworkEvaluation.model_validate_json(line) for line in lines)
    return FrameworkOutcome(evaluations=evaluations, environment=machine)


@contextmanager
def _actors(task: FrameworkTask) -> Iterator[dict[str, str]]:
    """Start a local system where Nitro's actors are wanted; yield how to reach it."""
    if task.sampler == "own":
        yield {}
        return
    with (
        tempfile.TemporaryDirectory(prefix="nitro-experiment-") as folder,
        LocalSystem(folder, learners=0, environment=_PATIENT, start_s=_START_S) as system,
    ):
        yield {"api_url": system.api_url, "token": system.token}


def _run(python: Path, framework: Framework, told: dict[str, object]) -> list[str]:
    script = f"experiments.frameworks.{framework}_run"
    done = subprocess.run(
        # A crash in native code leaves a trace, too.
        [str(python), "-X", "faulthandler", "-W", "ignore", "-m", script],
        input=json.dumps(told),  # not an argument: it may hold a token
        cwd=_ROOT,
        # More threads than cores slow each other down; the networks are small.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandError(
            f"{framework} {ending(done.returncode)}:\n{done.stderr[-_TAIL_CHARS:]}",
            exit_code=EXIT_FAILED,
        )
    return done.stdout.splitlines()


def ending(code: int) -> str:
    """Say how a process ended badly: a signal leaves no traceback, so it is named."""
    if code >= 0:
        return f"failed with code {code}"
    named = f"was ended by {signal.Signals(-code).name}"
    if -code == signal.SIGKILL:
        return f"{named}; Linux does that when memory runs out. Run the command again to go on"
    return named
