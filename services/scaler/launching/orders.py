"""The launch of a stored plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from services.scaler.book.attempts import AttemptKey, PlannedAttempt
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.jobs import Job
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.contracts.rounds import RoundPlan
from shared.trajectory.rollout_tasks import rollout_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A planned round's tasks on functions."""

    plan: RoundPlan
    lease_id: str
    job: Job
    samples: tuple[int, ...]
    """Actor indices to launch."""
    evaluations: tuple[int, ...]

    @classmethod
    def of(cls, planned: PlannedAttempt, job: Job) -> Self:
        """Return a plan's launch: all of it, or the relaunched part."""
        plan = planned.plan
        samples, evaluations = planned.samples, planned.evaluations
        actors, episodes = plan.function_actors, plan.function_evaluations
        return cls(
            plan=plan,
            lease_id=planned.lease_id,
            job=job,
            samples=tuple(actors if samples is None else (i for i in samples if i in actors)),
            evaluations=tuple(
                episodes if evaluations is None else (i for i in evaluations if i in episodes)
            ),
        )

    @property
    def key(self) -> AttemptKey:
        """Identity of the launch."""
        plan = self.plan
        return AttemptKey(plan.job_id, plan.round, plan.attempt, self.lease_id)

    @property
    def num_invocations(self) -> int:
        """Actors and evaluation episodes together."""
        return len(self.samples) + len(self.evaluations)

    def tasks(self) -> Iterator[RolloutTask]:
        """Yield the Lambda events, first those for which the learner waits."""
        return rollout_tasks(
            self.job,
            self.plan,
            lease_id=self.lease_id,
            samples=self.samples,
            evaluations=self.evaluations,
        )


def longest_event_bytes(env: EnvironmentRef) -> int:
    """Return the largest size of an actor's event with this environment."""
    most = 2**63 - 1
    task = RolloutTask(
        mode="evaluate",
        job_id="j" * 63,
        round=most,
        attempt=most,
        actor_index=most,
        policy_version=most,
        lease_hash="h" * 64,
        env=env,
        steps=most,
        num_envs=most,
        horizon=most,
        discount=1.2345678901234567e-100,
        replay_steps=most,
        search=SearchTask(
            seed=most,
            directions=most,
            parts=most,
            exploration_std=1.2345678901234567e-100,
            longest=most,
            moments=False,
        ),
        seed=most,
    )
    return len(task.model_dump_json().encode())
