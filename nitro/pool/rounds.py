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
from dataclasses import dataclass

from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from nitro.pool.round_calls import RoundCalls
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.lost_round import environment_failed, round_lost
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import RoundPlan, RoundResult, RoundTiming
from shared.trajectory.trajectory import Trajectory

_LOG = logging.getLogger(__name__)
_MOST_RELAUNCHES = 3
"""How often what vanished of a round is launched again."""
_REOPENINGS = 1
"""How often a round that brought too little is launched again."""


@dataclass(kw_only=True, eq=False)
class _Open:
    """The round whose batch the user has."""

    plan: RoundPlan
    collector: RoundCollector
    trajectories: tuple[Trajectory, ...]
    plan_s: float
    collect_s: float
    handed_over_at: float


class SyncRounds:
    """A job's rounds, one open at a time; use it from one thread."""

    def __init__(self, calls: RoundCalls) -> None:
        self._calls = calls
        self._job_id = calls.job.job_id
        self._open: _Open | None = None
        self._begun: Policy | None = None
        """What the actors of a round have that was asked for, and whose batch nobody has yet."""
        self._previous: RoundResult | None = None
        self.next_round = 0
        """Also the version of the policy that it is collected with."""

    @property
    def has_begun(self) -> bool:
        """Whether a round was collected."""
        return self._open is not None or self.next_round > 0

    @property
    def is_open(self) -> bool:
        """Whether the user has a round's batch whose result nobody was told."""
        return self._open is not None

    def preview(self) -> RoundPlan:
        """Return what the next round would be, or why there is none; nothing is launched."""
        self._end_round()
        return self._calls.preview(self.next_round, self.next_round, self._previous)

    def collect(self, policy: Policy, *, num_actors: int | None) -> Batch:
        """Launch the next round with a policy and return what its actors brought.

        A round that an error or Ctrl-C cut short is gone on with, with the policy it began with.

        Raises:
            PoolStopped: There is no next round; says why.
            RoundLostError: Too little came of the round.
        """
        asked_at, calls = time.perf_counter(), self._calls
        calls.require_open()
        policy = self._begun or policy
        payload = policy.encoded(calls.environment)
        self._end_round()
        calls.publish(self.next_round, payload)
        self._begun = policy
        plan = self._ask(num_actors=num_actors)
        self._forget_last_round()
        if plan.stop is not None:
            calls.finish(plan)
            raise calls.stopped(plan.stop, plan.reason)
        planned_at = time.perf_counter()
        collector = calls.collector(plan)
        trajectories = self._collected(collector, payload)
        batch = batch_of(
            trajectories,
            calls.environment,
            policy=policy,
            num_launched=plan.num_actors,
            bill=calls.bills.of(plan.round),
        )
        now = time.perf_counter()
        self._open = _Open(
            plan=plan,
            collector=collector,
            trajectories=trajectories,
            plan_s=planned_at - asked_at,
            collect_s=now - planned_at,
            handed_over_at=now,
        )
        self._begun = None
        calls.keep(trajectories)
        return batch

    def end(self, policy: Policy | None, why: StopReason) -> None:
        """Have the job's last plan made, with an evaluation of the policy if the job has any.

        Without a policy no round was collected, and nothing is asked for.
        """
        self._end_round()
        if policy is None:
            self._calls.stop = why
            return
        if self._calls.spec.evaluation.every_rounds:
            self._calls.publish(self.next_round, policy.encoded(self._calls.environment))
        plan = self._ask(ends=why)
        self._forget_last_round()
        self._calls.finish(plan)

    def _ask(self, **more: object) -> RoundPlan:
        return self._calls.ask(self.next_round, self.next_round, self._previous, **more)

    def _forget_last_round(self) -> None:
        if self.next_round:
            self._calls.cache.free_round(self._job_id, self.next_round - 1)
            self._calls.cache.delete_policy(self._job_id, self.next_round - 1)

    def _collected(self, collector: RoundCollector, payload: bytes) -> tuple[Trajectory, ...]:
        """Return a usable round's trajectories, launching again what vanished, or once too few."""
        left, relaunches = _REOPENINGS, _MOST_RELAUNCHES
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
                raise self._lost(
                    collector, f"although it was launched again {_MOST_RELAUNCHES} times"
                )
            self._reopen(collector, payload)
            trajectories = collector.trajectories()
        self._leave_if_asked(collector)
        if _usable(collector):
            return trajectories
        if collector.doomed or collector.all_blaming:
            raise environment_failed(collector)
        fewest = max(1, collector.plan.quorum)
        raise self._lost(collector, f"{fewest} are needed, and launching it again did not help")

    def _lost(self, collector: RoundCollector, history: str) -> Exception:
        return round_lost(collector, spec=self._calls.spec, history=history)

    def _reopen(self, collector: RoundCollector, payload: bytes) -> None:
        """Have what is missing launched again.

        Raises:
            PoolStopped: The job ends instead.
        """
        missing, episodes = collector.missing, collector.vanished_episodes
        _LOG.warning(
            "round launched again",
            extra={"job": self._job_id, "round": self.next_round, "why": collector.failures},
        )
        collector.prepare_reopening()
        self._calls.publish(self.next_round, payload)
        attempt = collector.attempt + 1
        again = self._ask(attempt=attempt, missing=missing, missing_evaluations=episodes)
        if again.stop is not None:
            self._calls.finish(again)
            raise self._calls.stopped(again.stop, again.reason)
        collector.reopen(again)

    def _leave_if_asked(self, collector: RoundCollector) -> None:
        lease = self._calls.lease
        if collector.missing and lease.should_leave:
            self._calls.require_held()
            raise self._calls.stopped(lease.stop or "client_gone", "asked to stop during a round")

    def _end_round(self) -> None:
        """Close the round whose batch the user has learned from; without effect if none is."""
        done = self._open
        if done is None:
            return
        learned_at = time.perf_counter()
        evaluation = self._calls.evaluated(done.collector)
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
            begun_anew=self._calls.release(done.plan.round),
            lost_replays=self._calls.take_lost_replays(),
            evaluation=evaluation,
            stats=self._calls.report.stats,
            own=self._calls.own_work(done.plan.round),
            timing=timing,
        )
        self._open = None
        self.next_round += 1


def _usable(collector: RoundCollector) -> bool:
    return len(collector.used) >= max(1, collector.plan.quorum)
