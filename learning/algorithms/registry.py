"""Algorithms by name, for a job's `algorithm`.

A new algorithm needs an entry in `BUILDERS` here, and its presets an entry in
`shared.hyperparameters.presets.ALGORITHMS`.
"""

from typing import Any, Protocol

import torch

from learning.algorithms.algorithm import Algorithm
from learning.algorithms.ars import Ars
from learning.algorithms.es import Es
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.ppo import Ppo
from learning.algorithms.sac import Crossq, Sac
from learning.updates.steps import StepsBuilder
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import Job


class Builder(Protocol):
    """Makes a new algorithm; the seed determines all of its random numbers."""

    def __call__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: Any,
        /,
        *,
        seed: int,
        max_rounds: int,
        first_round: int,
        device: torch.device,
        steps: StepsBuilder | None,
    ) -> Algorithm:
        """Return it for an environment, with the job's full set of its own hyper-parameters."""
        ...


BUILDERS: dict[str, Builder] = {
    "ppo": Ppo,
    "impact": Impact,
    "impala": Impala,
    "sac": Sac,
    "crossq": Crossq,
    "ars": Ars,
    "es": Es,
}


def build_algorithm(
    job: Job,
    *,
    device: torch.device,
    steps: StepsBuilder | None = None,
) -> Algorithm:
    """Return a job's algorithm; `steps`, if given, builds its gradient steps."""
    return BUILDERS[job.spec.algorithm](
        job.described_environment,
        job.hyperparameters,
        seed=job.spec.seed,
        max_rounds=job.decay.end,
        first_round=job.decay.first,
        device=device,
        steps=steps,
    )
