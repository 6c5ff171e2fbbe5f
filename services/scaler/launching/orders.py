"""What a stored plan launches."""

from dataclasses import dataclass
from typing import Literal, Self

from services.scaler.book.records import AttemptKey, PlannedAttempt
from shared.contracts.job_spec import EnvironmentRef, JobSpec
from shared.contracts.jobs import Job
from shared.contracts.leases import hash_of_lease
from shared.contracts.rollouts import RolloutTask
from shared.contracts.rounds import RoundPlan
from shared.trajectory.seeds import actor_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A planned round, about to be launched."""

    plan: RoundPlan
    lease_id: str
    spec: JobSpec
    samples: tuple[int, ...]
    """Actor indices to launch."""
    evaluations: tuple[int, ...]
    continues: bool = False
    """Whether rollouts take up episodes where others left them."""
    replay_steps: int = 0
    """Longest episode that is left as its actions; 0 where none is."""
    rebuild: bool = False
    """Whether every reset builds the environment anew."""
    discount: float = 1.0
    """Of the return that goes on with such an episode."""

    @classmethod
    def of(cls, planned: PlannedAttempt, job: Job) -> Self:
        """Return what a plan launches: all of it, or what is to be launched again."""
        plan = planned.plan
        samples, evaluations = planned.samples, planned.evaluations
        return cls(
            plan=plan,
            lease_id=planned.lease_id,
            spec=job.spec,
            samples=tuple(range(plan.num_actors)) if samples is None else samples,
            evaluations=(
                tuple(range(plan.num_evaluations)) if evaluations is None else evaluations
            ),
            continues=job.continues_episodes,
            replay_steps=job.replay_steps,
            rebuild=job.described_environment.repeats == "rebuilt",
            discount=job.hyperparameters.discount,
        )

    @property
    def key(self) -> AttemptKey:
        """Identity of the launch."""
        return self.plan.job_id, self.plan.round, self.plan.attempt, self.lease_id

    @property
    def num_invocations(self) -> int:
        """Actors and evaluation episodes together."""
        return len(self.samples) + len(self.evaluations)

    def tasks(self) -> list[RolloutTask]:
        """Return the Lambda events, rollouts first: the learner waits for those."""
        env = self.spec.environment_ref  # made once: making it checks it
        lease_hash = hash_of_lease(self.lease_id)
        rollouts = [self._task("sample", index, env, lease_hash) for index in self.samples]
        return rollouts + [
            self._task("evaluate", index, env, lease_hash) for index in self.evaluations
        ]

    def _task(
        self,
        mode: Literal["sample", "evaluate"],
        actor_index: int,
        env: EnvironmentRef,
        lease_hash: str,
    ) -> RolloutTask:
        spec, plan = self.spec, self.plan
        samples = mode == "sample"
        return RolloutTask(
            mode=mode,
            job_id=plan.job_id,
            round=plan.round,
            attempt=plan.attempt,
            actor_index=actor_index,
            policy_version=plan.policy_version,
            lease_hash=lease_hash,
            env=env,
            steps=spec.steps_of(plan.num_actors),
            num_envs=spec.envs_per_actor if samples else 1,
            continues=samples and self.continues,
            replay_steps=self.replay_steps if samples else 0,
            rebuild=self.rebuild,
            horizon=spec.episodes.cut_at if samples else None,
            discount=self.discount,
            seed=actor_seed(spec.seed, mode=mode, round_index=plan.round, actor_index=actor_index),
        )
