"""All experiments by name, and which have results."""

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rich.table import Table
from rich.text import Text

from experiments import studies
from experiments.experiment import Experiment
from experiments.store import read_summary
from nitro.errors import CommandError

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "actors": "the marginal value of actors: fixed counts in each preset",
        "policies": "scaling policies compared (Figure 15)",
        "policies_standard": "scaling policies compared, preset standard (Figure 15)",
        "samples": "boosting by a detector whose samples are drawn in proportion",
        "boosting": "boosting at chosen rounds (Figures 2, 7)",
        "scores": "boosting scores over environments, algorithms, runs (Figure 4)",
        "gain": "gain of boosting by round and size (Figure 9)",
        "surface": "reward surfaces along two eigenvectors (Figures 3, 8)",
        "games": "PPO and IMPACT with and without Nitro on six games (Figures 10, 11, 14)",
        "sensitivity": "sensitivity to decay, window, memory (Figure 16)",
        "ablation": "without boosting, without serverless (Figure 17)",
        "scalability": "execution time of 100 to 1,000 concurrent actors (Figure 18)",
        "breakdown": "latency of a round and overhead of the detector (Figure 20)",
        "horizon": "episodes that go on, beside episodes cut with every fragment",
        "calibration": "how long the parts of a round take on one core, in CPU time",
        "evolution": "ARS beside PPO and SAC: returns by steps, seconds and dollars",
        "population": "directions of ARS: fixed numbers beside one chosen by the noise scale",
        "dollars": "dollars and seconds to a return, at four sets of prices",
        "slow_simulators": "a slow simulator here, on a server and serverless, to a return",
        "slow_continuous": "SAC and CrossQ beside PPO where a step takes 24 ms, to a return",
        "stellaris": "a learner made of functions beside synchronous ones (Stellaris)",
        "stellaris_ablation": "three rules for gradients of functions, each on and off",
        "learners": "one learner function to sixteen: time, dollars, staleness, stages",
        "sb3": "Stable-Baselines3: its own sampler beside Nitro's actors",
        "rllib": "RLlib: its own sampler beside Nitro's actors (Figures 12 to 14)",
        "msrl": "MSRL: its own environments beside Nitro's actors (Figures 12 to 14)",
        "detector_subsampling": "how much sub-sampling the detector changes decisions",
    }
)
"""Modules in rooms of `experiments.studies` and what each is about, in the order of the report."""


def load(name: str) -> Experiment:
    """Return an experiment.

    Raises:
        CommandError: There is none of this name.
    """
    if name not in NAMES:
        raise CommandError(f"NAME: no experiment {name!r}; known: {', '.join(NAMES)}")
    rooms = pkgutil.walk_packages(studies.__path__, f"{studies.__name__}.")
    modules = [each.name for each in rooms if not each.ispkg]
    (module,) = [each for each in modules if each.endswith(f".{name}")]
    found = importlib.import_module(module).EXPERIMENT
    if not isinstance(found, Experiment):
        raise TypeError(f"{module}.EXPERIMENT is no experiment")
    return found


def experiments_table(out: Path) -> Table:
    """List every experiment with the results it has.

    Raises:
        CommandError: Results are damaged, or cannot be read.
    """
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "what", "results"):
        table.add_column(heading, no_wrap=heading == "name")
    for name, about in NAMES.items():
        table.add_row(name, Text(about), Text(_results(name, out)))
    return table


def _results(name: str, out: Path) -> str:
    summary = read_summary(out / name / f"{name}.json", f"nitro experiment run {name}")
    return "–" if summary is None else summary.made
