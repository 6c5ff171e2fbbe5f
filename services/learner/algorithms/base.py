"""The seam between the round loop and a learning algorithm."""

from collections.abc import Sequence
from typing import Protocol

import torch

from services.learner.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from services.learner.algorithms.ppo import Ppo
from services.learner.networks import PolicyPayload
from shared.contracts import Curvature
from shared.hyperparameters import resolve
from shared.job_spec import DetectorRule
from shared.jobs import Job
from shared.trajectory import Trajectory


class Algorithm(Protocol):
    """Learns a policy from the trajectories of one round after another."""

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        ...

    def update(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order they arrived."""
        ...

    def curvature(self, rule: DetectorRule) -> Curvature | None:
        """Measure the surrogate objective at the present policy on the last update's samples."""
        ...

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        ...

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned."""
        ...


def build_algorithm(job: Job, *, device: torch.device) -> Algorithm:
    """Return the algorithm a job asks for, freshly initialised from the job's seed."""
    spec = job.spec
    hyperparameters = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    return Ppo(job.environment, hyperparameters, seed=spec.seed, device=device)
