"""The seam between the round loop and a learning algorithm."""

from collections.abc import Sequence
from typing import Protocol

import torch

from learning.algorithms.impact import build_impact
from learning.algorithms.impala import build_impala
from learning.algorithms.off_policy import OffPolicyLearner
from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.algorithms.ppo import Ppo
from learning.algorithms.whole_rounds import WholeRounds
from learning.cpu.second_process import SecondProcess
from learning.detectors.detector import PolicySamples
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload
from shared.contracts.jobs import Job
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.trajectory import Trajectory


class Algorithm(Protocol):
    """Learns a policy from the trajectories of one round after another."""

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        ...

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        ...

    def update(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order they arrived."""
        ...

    def samples(self) -> PolicySamples | None:
        """Return what a detector is shown of the last update; None where nothing was updated.

        Ask once a round, measured or not.
        """
        ...

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        ...

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned."""
        ...


class OffPolicyAlgorithm(Protocol):
    """Learns from trajectories of several policy versions, as they come: IMPACT, IMPALA.

    The loop adds what arrived, calls `update` while `ready` says so, and tells with `advance` which
    version the policy is after it; it publishes those versions that actors will fetch. Trajectories
    come in the order of `add`; equal calls from equal state give equal bits.
    """

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        ...

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        ...

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Take in trajectories, in this order; every full batch of them becomes fresh.

        What does not fill a batch waits for more, or for `flush`.
        """
        ...

    def flush(self) -> None:
        """Make a batch of the trajectories that wait, however few: nothing more is to come soon."""
        ...

    @property
    def ready(self) -> bool:
        """Whether `update` has a batch: one that was never used, or one to replay."""
        ...

    @property
    def has_fresh(self) -> bool:
        """Whether a batch that was never used is waiting; `update` takes those first."""
        ...

    def update(self) -> PolicyUpdate:
        """Improve the policy with one batch.

        Stats hold at least `policy_lag_mean` and `policy_lag_max` (present version less the
        trajectory's, over the batch's trajectories) and `fresh` (1, or 0 for a replay).

        Raises:
            RuntimeError: Not `ready`.
            FloatingPointError: Gradient steps stopped being finite; the policy is as before them.
        """
        ...

    def advance(self, policy_version: int) -> None:
        """Take note that the present policy is version `policy_version`: 0 at the start."""
        ...

    def samples(self) -> PolicySamples | None:
        """Return what a detector is shown of the last update; None where nothing was updated.

        Ask once a round, measured or not.
        """
        ...

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars.

        Trajectories that were added are part of it, used or not.
        """
        ...

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned."""
        ...


def build_algorithm(
    job: Job, *, device: torch.device, second_process: SecondProcess | None = None
) -> Algorithm:
    """Return the algorithm a job asks for, freshly initialised from the job's seed."""
    spec = job.spec
    hyperparameters = job.hyperparameters
    if isinstance(hyperparameters, PpoHyperparameters):
        return Ppo(
            job.described_environment,
            hyperparameters,
            seed=spec.seed,
            max_rounds=spec.stop.max_rounds,
            device=device,
            second_process=second_process,
        )
    return WholeRounds(
        _off_policy_learner(job, hyperparameters, device=device, second_process=second_process)
    )


def build_off_policy_algorithm(job: Job, *, device: torch.device) -> OffPolicyAlgorithm:
    """Return the algorithm of a job whose rounds overlap, freshly initialised from its seed.

    Raises:
        ValueError: The job's algorithm learns on-policy.
    """
    spec = job.spec
    hyperparameters = job.hyperparameters
    if isinstance(hyperparameters, PpoHyperparameters):
        raise ValueError(f"{spec.algorithm} learns on-policy: its rounds cannot overlap")
    # Its actors work at the same time: there is no core to spare.
    return _off_policy_learner(job, hyperparameters, device=device, second_process=None)


def _off_policy_learner(
    job: Job,
    hyperparameters: ImpactHyperparameters | ImpalaHyperparameters,
    *,
    device: torch.device,
    second_process: SecondProcess | None,
) -> OffPolicyLearner:
    seed, max_rounds = job.spec.seed, job.spec.stop.max_rounds
    if isinstance(hyperparameters, ImpactHyperparameters):
        return build_impact(
            job.described_environment,
            hyperparameters,
            seed=seed,
            max_rounds=max_rounds,
            device=device,
            second_process=second_process,
        )
    return build_impala(
        job.described_environment,
        hyperparameters,
        seed=seed,
        max_rounds=max_rounds,
        device=device,
        second_process=second_process,
    )
