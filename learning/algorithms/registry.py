"""Algorithms by the name that a job's `algorithm` gives.

A new one is an entry of `ON_POLICY` or `OFF_POLICY` here, whichever seam it has, and an entry of
`shared.hyperparameters.presets.ALGORITHMS` with its presets.
"""

from typing import Any, Protocol, TypeVar

import torch

from learning.algorithms.algorithm import Algorithm, OffPolicyAlgorithm
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.ppo import Ppo
from learning.algorithms.sac import Sac
from learning.algorithms.whole_rounds import WholeRounds
from learning.updates.steps import StepsBuilder
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.jobs import Job

A_co = TypeVar("A_co", bound=Algorithm | OffPolicyAlgorithm, covariant=True)


class Builder(Protocol[A_co]):
    """Makes a new algorithm; everything random in it follows from the seed."""

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
    ) -> A_co:
        """Return it for an environment, with the job's full set of its own hyper-parameters."""
        ...


ON_POLICY: dict[str, Builder[Algorithm]] = {"ppo": Ppo}
OFF_POLICY: dict[str, Builder[OffPolicyAlgorithm]] = {
    "impact": Impact,
    "impala": Impala,
    "sac": Sac,
}


def build_algorithm(
    job: Job,
    *,
    device: torch.device,
    steps: StepsBuilder | None = None,
) -> Algorithm:
    """Return the algorithm of a job whose rounds come one after the other.

    Its gradient steps are taken by what `steps` makes, where that is given.
    """
    on_policy = ON_POLICY.get(job.spec.algorithm)
    if on_policy is not None:
        return _built(on_policy, job, device, steps)
    return WholeRounds(_built(OFF_POLICY[job.spec.algorithm], job, device, steps))


def build_off_policy_algorithm(
    job: Job,
    *,
    device: torch.device,
    steps: StepsBuilder | None = None,
) -> OffPolicyAlgorithm:
    """Return the algorithm of a job whose rounds overlap; `steps` as of `build_algorithm`.

    Raises:
        ValueError: The job's algorithm learns on-policy.
    """
    name = job.spec.algorithm
    if name in ON_POLICY:
        raise ValueError(f"{name} learns on-policy: its rounds cannot overlap")
    return _built(OFF_POLICY[name], job, device, steps)


def _built(
    build: Builder[A_co], job: Job, device: torch.device, steps: StepsBuilder | None
) -> A_co:
    return build(
        job.described_environment,
        job.hyperparameters,
        seed=job.spec.seed,
        max_rounds=job.decay.end,
        first_round=job.decay.first,
        device=device,
        steps=steps,
    )
