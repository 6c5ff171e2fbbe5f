"""All experiments by name."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from experiments.experiment import Experiment
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
        "detector_subsampling": "how much sub-sampling the detector changes decisions",
    }
)
"""Modules of this package and what each is about, in the order of the report."""
STUDIES = frozenset({"detector_subsampling"})
"""Modules with a `main` of their own in place of a grid."""


def load(name: str) -> Experiment:
    """Return an experiment.

    Raises:
        CommandError: There is none of this name, or it is a study without a grid.
    """
    if name not in NAMES:
        raise CommandError(f"NAME: no experiment {name!r}; known: {', '.join(NAMES)}")
    if name in STUDIES:
        raise CommandError(f"NAME: {name} is a study of its own and cannot be taken apart")
    found = importlib.import_module(f"experiments.{name}").EXPERIMENT
    if not isinstance(found, Experiment):
        raise TypeError(f"experiments.{name}.EXPERIMENT is no experiment")
    return found
