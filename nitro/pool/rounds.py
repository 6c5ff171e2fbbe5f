"""One round after the other: ask, publish the policy, collect, tell what came of it.

    preview ──▶ publish policy v ──▶ ask (actors start) ──▶ collect ──▶ the user learns
       ▲                                                                     │
       └──────── result of the round: counts, returns, evaluation ◀──────────┘

It does what the learner's `SynchronousRounds` does but for learning and checkpoints. The user's own
time from one batch to the next request is told as that of the update, which sets the price of a
round and decides nothing else.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nitro.pool.batch import Batch, batch_of
from nitro.pool.connection import Connection
from nitro.pool.policy import Policy
from nitro.pool.stopping import PoolStopped
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.streams import Streams
from shared.contracts.billing import LedgerLine
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import (
    Curvature,
    EvaluationResult,
    GradientNoise,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
)
from shared.trajectory.trajectory import Trajectory

_LOG = logging.getLogger(__name__)
_MOST_RELAUNCHES = 3
"""How often what vanished of a round is launched again."""
_REOPENINGS = 1
"""How often a round that brought too little is launched again."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What the user measured since the last request."""

    curvature: Curvature | None = None
    gradient_noise: GradientNoise | None = None
    stats: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class _Open:
    """The round whose batch the user has, or waits for."""

    plan: RoundPlan
    collector: RoundCollector
    trajectories: tuple[Trajectory, ...]
    plan_s: float
    collect_s: float
    handed_over_at: float


class SyncRounds:
    """A job's rounds, one open at a time; use it from one thread."""

    def __init__(self, connection: Connection, bills: "Bills") -> None:
        self._to = connection
        self._spec = connection.job.spec
        self._job_id = connection.job.job_id
        self._environment = connection.job.described_environment
        self._streams = Streams(envs_per_actor=self._spec.envs_per_actor)
        self._bills = bills
        self._open: _Open | None = None
        self._previous: RoundResult | None = None
        self.next_round = 0
        self.report = Report()
        self.stop: StopReason | None = None
        """Why the rounds are over; None as long as they go on."""
        self.evaluations: list[EvaluationResult] = []

    def preview(self) -> RoundPlan:
        """Return what the next round would be, or why there is none; nothing is launched."""
        self._end_round()
        self._require_lease()
        return self._to.scaler.preview_round(self._job_id, self.next_round, self._request())

    def collect(self, policy: Policy, *, num_actors: int | None) -> Batch:
        """Launch the next round with a policy and return what its actors brought.

        Raises:
            PoolStopped: There is no next round; says why.
            RoundLostError: Too little came of the round.
        """
        if self.stop is not None:
            raise PoolStopped(self.stop, "the pool's rounds are over")
        asked_at = time.perf_counter()
        self._end_round()
        self._require_lease()
        payload = policy.encoded(self._environment)
        self._publish(payload)
        plan = self._ask(num_actors=num_actors)
        self._forget_last_round()
        if plan.stop is not None:
            self._finish(plan)
            raise PoolStopped(plan.stop, plan.reason)
        planned_at = time.perf_counter()
        collector = self._collector(plan)
        trajectories = self._collected(collector, payload)
        now = time.perf_counter()
        self._open = _Open(
            plan=plan,
            collector=collector,
            trajectories=trajectories,
            plan_s=planned_at - asked_at,
            collect_s=now - planned_at,
            handed_over_at=now,
        )
        return batch_of(
            trajectories,
            self._environment,
            num_launched=plan.num_actors,
            bill=self._bills.of(plan.round),
        )

    def _require_lease(self) -> None:
        if self._to.lease.lost:
            raise PoolStopped("client_gone", "the lease was lost: nothing was heard from here")

    def _request(self, **more: object) -> RoundRequest:
        report = self.report
        said = {
            "lease_id": self._to.lease.lease_id,
            "policy_version": self.next_round,
            "curvature": report.curvature,
            "gradient_noise": report.gradient_noise,
            "previous": self._previous,
        }
        return RoundRequest.model_validate(said | more)

    def _ask(self, *, attempt: int = 0, **more: object) -> RoundPlan:
        """Have the round launched; asked again, the scaler returns the same plan."""
        index = self.next_round
        if self._to.job.continues_episodes:
            # Before the plan: its actors start at once.
            most = self._spec.actors.max * self._spec.envs_per_actor
            starts = self._streams.starts(index)[:most]
            self._to.cache.publish_starts(self._job_id, index, starts)
        request = self._request(attempt=attempt, **more)
        plan = self._to.scaler.open_round(self._job_id, index, request)
        if plan.stop is None:
            self._streams.take(index, plan.num_actors)
        if attempt == 0:
            self._bills.add(plan.settled)
            self.report = Report()
        return plan

    def _publish(self, payload: bytes) -> None:
        self._to.cache.publish_policy(self._job_id, self.next_round, payload)

    def _forget_last_round(self) -> None:
        if self.next_round:
            self._to.cache.free_round(self._job_id, self.next_round - 1)
            self._to.cache.delete_policy(self._job_id, self.next_round - 1)

    def _collector(self, plan: RoundPlan) -> RoundCollector:
        lease = self._to.lease
        return RoundCollector(
            self._to.cache,
            plan,
            self._environment,
            steps_per_actor=self._spec.steps_of(max(1, plan.num_actors)),
            envs_per_actor=self._spec.envs_per_actor,
            should_leave=lambda: lease.should_leave,
            must_leave=lambda: lease.must_leave,
        )

    def _collected(self, collector: RoundCollector, payload: bytes) -> tuple[Trajectory, ...]:
        """Return a usable round's trajectories, launching again what vanished, or once too few."""
        plan, left, relaunches = collector.plan, _REOPENINGS, _MOST_RELAUNCHES
        trajectories = collector.trajectories()
        while collector.vanished or (left and not _usable(collector)):
            self._leave_if_asked(collector)
            if collector.doomed:
                raise environment_failed(collector)
            if collector.vanished:
                relaunches -= 1
            else:
                left -= 1
            if relaunches < 0:
                history = f"although it was launched again {_MOST_RELAUNCHES} times"
                raise round_lost(collector, env_id=self._spec.env_id, history=history)
            again = self._reopen(collector, payload)
            if again.stop is not None:
                self._finish(again)
                raise PoolStopped(again.stop, again.reason)
            trajectories = collector.trajectories()
        self._leave_if_asked(collector)
        if not _usable(collector):
            if collector.doomed or collector.all_blaming:
                raise environment_failed(collector)
            history = f"{max(1, plan.quorum)} are needed, and launching it again did not help"
            raise round_lost(collector, env_id=self._spec.env_id, history=history)
        return trajectories

    def _reopen(self, collector: RoundCollector, payload: bytes) -> RoundPlan:
        missing = collector.missing
        _LOG.warning(
            "round launched again",
            extra={"job": self._job_id, "round": self.next_round, "why": collector.failures},
        )
        collector.prepare_reopening()
        self._publish(payload)
        again = self._ask(
            attempt=collector.attempt + 1,
            missing=missing,
            missing_evaluations=collector.vanished_episodes,
        )
        if again.stop is None:
            collector.reopen(again)
        return again

    def _leave_if_asked(self, collector: RoundCollector) -> None:
        lease = self._to.lease
        if collector.missing and lease.should_leave:
            raise PoolStopped(lease.stop or "client_gone", "asked to stop during a round")

    def _end_round(self) -> None:
        """Close the round whose batch the user has learned from; without effect if none is."""
        done = self._open
        if done is None:
            return
        self._open = None
        learned_at = time.perf_counter()
        evaluation = self._evaluated(done.collector)
        for trajectory in done.trajectories:
            if self._to.job.continues_episodes:
                self._streams.leave(done.plan.round, trajectory.actor_index, trajectory.snapshots)
        self._streams.release(done.plan.round)
        counts = done.collector.close()
        update_s = learned_at - done.handed_over_at
        evaluate_s = time.perf_counter() - learned_at
        timing = RoundTiming(
            plan_s=done.plan_s,
            collect_s=done.collect_s,
            update_s=update_s,
            curvature_s=0.0,
            evaluate_s=evaluate_s,
            checkpoint_s=0.0,
            total_s=done.plan_s + done.collect_s + update_s + evaluate_s,
        )
        self._previous = RoundResult(
            round=done.plan.round,
            policy_version=done.plan.policy_version + 1,
            trajectories=counts,
            env_steps=sum(t.num_steps for t in done.trajectories),
            episode_returns=tuple(float(r) for t in done.trajectories for r in t.episode_returns),
            dropped_episodes=sum(t.dropped_episodes for t in done.trajectories),
            begun_anew=sum(t.begun_anew for t in done.trajectories),
            evaluation=evaluation,
            stats=self.report.stats,
            timing=timing,
        )
        self.next_round += 1

    def _evaluated(self, collector: RoundCollector) -> EvaluationResult | None:
        episodes = collector.episodes()
        if not episodes:
            return None
        result = EvaluationResult(
            policy_version=collector.plan.policy_version,
            returns=tuple(e.episode_return for e in episodes),
            lengths=tuple(e.length for e in episodes),
        )
        self.evaluations.append(result)
        return result

    def _finish(self, plan: RoundPlan) -> None:
        """Play what the last plan launched: the final evaluation."""
        collector = self._collector(plan)
        self.final_evaluation = self._evaluated(collector)
        collector.close()
        self._to.cache.forget_starts(self._job_id, plan.round)
        self.stop = plan.stop

    final_evaluation: EvaluationResult | None = None
    """Of the policy that the last plan was asked for with."""


class Bills:
    """What each round was billed, as the scaler tells with later plans."""

    def __init__(self) -> None:
        self._usd: dict[int, float] = {}

    def add(self, lines: Iterable[LedgerLine]) -> None:
        """Take in final lines of the ledger."""
        for line in lines:
            self._usd[line.round] = self._usd.get(line.round, 0.0) + line.amount_usd

    def of(self, round_index: int) -> Callable[[], float | None]:
        """Return what tells the bill of a round; None while it is not final."""
        return lambda: self._usd.get(round_index)


def _usable(collector: RoundCollector) -> bool:
    return len(collector.used) >= max(1, collector.plan.quorum)
