"""What a plan launches, and the orders of plans that are not answered yet.

A store may write a plan and fail to say so. Whoever asks for the round again is given what is
stored; the order made with it waits here, and goes out with the first answer, whoever gets it.
"""

import secrets
import threading
from dataclasses import dataclass
from typing import Literal

from services.scaler.book.records import AttemptKey, PlannedAttempt
from shared.contracts.job_spec import EnvironmentRef, JobSpec
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


class WaitingOrders:
    """Hands out the order of every written plan once. Thread-safe.

    A plan is decided again when somebody else changed the job meanwhile, and several may be decided
    for one round at a time. One of them is written: the name that is stored with it tells which.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[AttemptKey, dict[str, LaunchOrder]] = {}

    def add(self, order: LaunchOrder) -> str:
        """Keep an order whose plan is about to be written; return its name."""
        name = secrets.token_hex(8)
        with self._lock:
            self._waiting.setdefault(order.key, {})[name] = order
        return name

    def take(self, written: PlannedAttempt) -> LaunchOrder | None:
        """Return a written plan's order; None when it was taken before, or by an earlier process.

        Orders of plans that were decided for the same launch and not written are dropped.
        """
        if written.order_name is None:
            return None
        with self._lock:
            return self._waiting.pop(written.key, {}).get(written.order_name)
