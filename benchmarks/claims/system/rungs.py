"""A search that promotes at rungs, beside the same trials in full, and beside itself killed.

    python -m benchmarks rungs

Sixteen learning rates, CartPole-v1, three seeds each. The search pauses at 5,000, 10,000 and 20,000
of 30,000 steps. A trial's steps are all that it made, those beyond its rung too. The third search
is killed every so often, and goes on from its folder.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target
from nitro.sweeps.folder import SweepFolder
from nitro.sweeps.search.trial import Trial, best, trials_of

TITLE = "Search over the learning rate of CartPole-v1: rungs beside every trial in full"
_RATES = "hyperparameters.learning_rate=1e-5:1e-1:log"
_KILLS = 3
_ALIVE_S = 40.0
"""Of a search that is killed: less than all of its parts take."""


def measure(effort: Effort) -> list[Row]:
    """Search three times."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = _Search(Path(folder), quick=effort.quick)
        full = sweep.trials("full", rungs=None)
        promoted = sweep.trials("rungs", rungs=sweep.rungs)
        killed = sweep.trials("killed", rungs=sweep.rungs, kills=effort.of(_KILLS, quick=1))
    (of_all,), (of_promoted,) = best(full, 1), best(promoted, 1)
    differ = sum(_found(a) != _found(b) for a, b in zip(promoted, killed, strict=True))
    return [
        Row(
            what="steps of the search with rungs, of those of all trials in full",
            ours=_series("rungs", "%", [100 * _steps(promoted) / _steps(full)], better="lower"),
            target=Target(of="ours", bound="at_most", value=50.0),
        ),
        Row(
            what="return of the best trial",
            ours=_series("rungs", "mean return", [of_promoted.value], of=of_promoted),
            peer=_series("all in full", "mean return", [of_all.value], of=of_all),
            target=Target(of="ratio", bound="at_least", value=1.0),
        ),
        Row(
            what=f"trials of {len(promoted)} that differ after the command was killed",
            ours=_series("killed and resumed", "trials", [float(differ)], better="lower"),
            target=Target(of="ours", bound="at_most", value=0.0),
        ),
    ]


class _Search:
    """Runs searches that differ in their rungs alone."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self._folder = folder
        self._options = [
            *("--trials", "4" if quick else "16"),
            *("--seeds", "1" if quick else "3"),
            *("--total-steps", "6_000" if quick else "30_000"),
        ]
        self.rungs = "2_000,4_000" if quick else "5_000,10_000,20_000"

    def trials(self, name: str, *, rungs: str | None, kills: int = 0) -> list[Trial]:
        """Search, killed so often before its end, and return the trials."""
        progress(f"search {name}")
        command = [
            *(sys.executable, "-m", "nitro.cli.main", "sweep", "CartPole-v1", "--name", name),
            *("--search", _RATES, "--finalists", "0", *self._options),
            *("--set", "samples_per_round=1024", "--set", "evaluation.episodes=20"),
            *("--runs-dir", str(self._folder)),
            *(("--rungs", rungs) if rungs else ()),
        ]
        for _ in range(kills):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                process.wait(_ALIVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return trials_of(SweepFolder(self._folder, name).rows())


def _found(trial: Trial) -> tuple[object, ...]:
    """Return what a search knows of a trial: its values, how far it went, and what it came to."""
    return (trial.values, trial.mark, trial.value)


def _steps(trials: Sequence[Trial]) -> int:
    return sum(row.outcome.env_steps for trial in trials for row in trial.rows if row.outcome)


def _series(
    name: str,
    unit: str,
    samples: Sequence[float],
    *,
    better: Literal["higher", "lower"] = "higher",
    of: Trial | None = None,
) -> Series:
    about = (
        {} if of is None else {"trial": str(of.index), **{k: str(v) for k, v in of.values.items()}}
    )
    return Series(name=name, unit=unit, better=better, samples=tuple(samples), about=about)
