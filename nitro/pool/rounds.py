"""Rounds in sequence: ask, publish the policy, collect, report the result.

    preview ──▶ publish policy v ──▶ ask (actors start) ──▶ collect ──▶ the user learns
       ▲                                                                     │
       └──────── result of the round: counts, returns, evaluation ◀──────────┘

Each step is one of `JobRounds`, as in the learner's `SynchronousRounds`. The time between a batch
and the next request belongs to the user's loop. It is reported as the update's time, which affects
only a round's price.
"""

from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from nitro.pool.round_calls import RoundCalls
from services.learner.rounds.round_clock import RoundClock
from services.learner.rounds.window import OpenedRound
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import RoundPlan, RoundResult


class SyncRounds:
    """A job's rounds, one open at a time; use it from one thread."""

    def __init__(self, calls: RoundCalls) -> None:
        self._calls = calls
        self._clock = RoundClock()
        self._open: OpenedRound | None = None
        """The round whose batch the user has."""
        self._begun: Policy | None = None
        """The policy of the round in flight, before its batch is returned."""
        self._previous: RoundResult | None = None
        self.next_round = 0
        """Also the version of its policy."""

    @property
    def has_begun(self) -> bool:
        """Whether a round was collected."""
        return self._open is not None or self.next_round > 0

    @property
    def is_open(self) -> bool:
        """Whether the user has the batch of a round that is not reported yet."""
        return self._open is not None

    def preview(self) -> RoundPlan:
        """Return the next round's plan, or why there is none, without launching it."""
        self._end_round()
        return self._calls.preview(self.next_round, self._previous)

    def collect(self, policy: Policy, *, num_actors: int | None) -> Batch:
        """Launch the next round with a policy and return its batch.

        A round that an error or Ctrl-C interrupted is continued, with its original policy.

        Raises:
            PoolStopped: There is no next round; gives the reason.
            RoundLostError: The round got too few trajectories.
        """
        calls = self._calls
        calls.require_open()
        if self._open is None:
            self._clock = RoundClock()  # the user's time before the first round does not count
        policy = self._begun or policy
        payload = policy.encoded(calls.environment)
        self._end_round()
        with calls.while_held():
            calls.rounds.publish(self.next_round, payload)
            self._begun = policy
            plan = calls.ask(self.next_round, self._previous, num_actors=num_actors)
            self._forget_last_round()
            self._require_no_end(plan)
            self._clock.lap("plan_s")
            opened = calls.rounds.open(plan)
            ending = calls.rounds.collect(opened)
            if ending is not None:
                self._require_no_end(ending)
        trajectories = opened.fresh()
        batch = batch_of(
            trajectories,
            calls.environment,
            policy=policy,
            num_launched=plan.num_actors,
            bill=calls.bills.of(plan.round),
        )
        calls.rounds.keep(trajectories)
        self._clock.lap("collect_s")
        self._open, self._begun = opened, None
        return batch

    def end(self, policy: Policy | None, why: StopReason) -> None:
        """Request the job's last plan, with a final evaluation if the job has evaluations.

        Without a policy no round was collected, and nothing is requested.
        """
        self._end_round()
        if policy is None:
            self._calls.stop = why
            return
        calls = self._calls
        with calls.while_held():
            if calls.spec.evaluation.every_rounds:
                calls.rounds.publish(self.next_round, policy.encoded(calls.environment))
            plan = calls.ask(self.next_round, self._previous, ends=why)
            self._forget_last_round()
            calls.finish(plan)

    def _require_no_end(self, plan: RoundPlan) -> None:
        """Raise `PoolStopped` if a plan ends the job, after recording the final evaluation."""
        if plan.stop is not None:
            self._calls.finish(plan)
            raise self._calls.stopped(plan.stop, plan.reason)

    def _forget_last_round(self) -> None:
        if self.next_round:
            job_id, cache = self._calls.job.job_id, self._calls.rounds.cache
            cache.free_round(job_id, self.next_round - 1)
            cache.delete_policy(job_id, self.next_round - 1)

    def _end_round(self) -> None:
        """Close the round that the user has learned from; do nothing without one."""
        done, calls = self._open, self._calls
        if done is None:
            return
        self._clock.lap("update_s")
        with calls.while_held():
            evaluation = calls.evaluated(done)
        counts = done.collector.close()
        self._clock.lap("evaluate_s")
        self._previous = calls.rounds.result(
            done,
            counts,
            policy_version=done.plan.policy_version + 1,
            evaluation=evaluation,
            stats=calls.report.stats,
            timing=self._clock.take(),
        )
        self._open = None
        self.next_round += 1
