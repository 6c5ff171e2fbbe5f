"""Training one job, round by round.

    publish policy v ──▶ ask the scaler for round k ──▶ collect ──▶ update ──▶ measure curvature
          ▲                (plan: actors, deadline,        │                          │
          │                 quorum, or why to stop)        ▼                          ▼
          └───────────── checkpoint ◀── record ◀── evaluation episodes, close the round

    | step       | waits for                        | who ends the wait                   |
    |------------|----------------------------------|-------------------------------------|
    | ask        | the scaler's answer              | the scaler; patience when it is gone|
    | collect    | one answer per launched actor    | actors, the scaler for failed ones, |
    |            |                                  | the deadline, a stop or lost lease  |
    | evaluation | the episodes of this round       | the same, but for a stop            |

What each step does is `RoundSession`'s; this file says in which order, and what is launched again.
"""

import logging
from collections.abc import Sequence

from learning.algorithms.algorithm import Algorithm
from services.learner.record.checkpoint import RunState
from services.learner.rounds.collector import CollectedRound, RoundCollector
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.session import LeftEarly, RoundSession, evaluation_result
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult, RoundPlan, RoundResult

_LOG = logging.getLogger(__name__)
_MOST_RELAUNCHES = 3
"""How often what vanished of a round is launched again: a part that ends each time needs repair."""


class SynchronousRounds:
    """Trains one job from where its state says, until the scaler says stop."""

    def __init__(self, session: RoundSession[Algorithm]) -> None:
        self._session = session
        self._job = session.job
        self._parts = session.parts
        self._clock = session.clock
        self._published = b""
        """The policy of the round in hand, also while the next one is made of it."""
        self._relaunches_left = _MOST_RELAUNCHES
        """Of the round in hand."""

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train to the end; return why it ended and the final policy's evaluation.

        Raises:
            RoundLostError: Too few trajectories arrived, although the round was reopened, or the
                environment failed in actor after actor.
            LeftEarly: The lease was lost, or the job or this process was asked to stop mid-round.
        """
        while True:
            self._published = self._session.policy_payload()
            self._publish()
            self._session.leave_if_must("between two rounds")
            plan = self._open_round()
            self._forget_last_round()
            self._clock.lap("plan_s")
            ending = plan if plan.stop is not None else self._train_round(plan)
            if ending is not None and ending.stop is not None:
                return ending.stop, self._finish(ending)

    def _train_round(self, plan: RoundPlan) -> RoundPlan | None:
        """Train one round; return the plan that ends the job instead, if that came of it."""
        collector = self._collector(plan)
        collected = self._collect(plan, collector)
        if isinstance(collected, RoundPlan):
            return collected
        self._clock.lap("collect_s")
        update = self._parts.algorithm.update(collected.trajectories)
        self._clock.lap("update_s")
        curvature = self._session.measurement(plan.round)
        evaluation = self._evaluated(plan, collector)
        counts = collector.close()
        self._clock.lap("evaluate_s")
        result = RoundResult(
            round=plan.round,
            policy_version=plan.policy_version + 1,
            trajectories=counts,
            env_steps=sum(t.num_steps for t in collected.trajectories),
            episode_returns=tuple(
                float(r) for t in collected.trajectories for r in t.episode_returns
            ),
            dropped_episodes=sum(t.dropped_episodes for t in collected.trajectories),
            evaluation=evaluation,
            stats=update.stats,
            timing=self._clock.take(),
        )
        state = RunState(
            next_round=plan.round + 1,
            policy_version=plan.policy_version + 1,
            curvature=curvature,
            previous=result,
        )
        self._session.save(plan, result, state)
        return None

    def _publish(self) -> None:
        self._session.publish(self._session.state.policy_version, self._published)

    def _forget_last_round(self) -> None:
        state = self._session.state
        if state.next_round:
            self._session.forget_round(state.next_round - 1)
            self._session.forget_policy(state.policy_version - 1)

    def _open_round(
        self,
        attempt: int = 0,
        missing: tuple[int, ...] | None = None,
        missing_evaluations: tuple[int, ...] = (),
    ) -> RoundPlan:
        state = self._session.state
        return self._session.ask(
            state.next_round,
            policy_version=state.policy_version,
            curvature=state.curvature,
            previous=state.previous,
            attempt=attempt,
            missing=missing,
            missing_evaluations=missing_evaluations,
        )

    def _collector(self, plan: RoundPlan) -> RoundCollector:
        self._relaunches_left = _MOST_RELAUNCHES
        return RoundCollector(
            self._parts.cache,
            plan,
            self._job.described_environment,
            steps_per_actor=self._job.spec.steps_per_actor,
            envs_per_actor=self._job.spec.envs_per_actor,
            should_leave=lambda: self._parts.lease.should_leave,
            must_leave=lambda: self._parts.lease.must_leave,
        )

    def _collect(self, plan: RoundPlan, collector: RoundCollector) -> CollectedRound | RoundPlan:
        """Collect a usable round, opening it again for what is missing if it must be.

        Actors that vanished have not failed: they are launched again, so that a restart does not
        change what is learned from.

        Returns:
            The round, or the plan that ends the job where it may not be opened again.

        Raises:
            RoundLostError: Too little came, or actors vanished time after time.
        """
        collected = collector.trajectories()
        left = self._parts.max_reopenings
        while collected.vanished or (left and not self._usable(plan, collected)):
            self._leave_if_asked(collected)
            if collector.doomed:
                raise environment_failed(plan, collector)
            if collected.vanished:
                self._relaunch(plan, collector, collected)
            else:
                left -= 1
            again = self._reopen(collector, collected.missing, collected.failures)
            if again.stop is not None:
                _LOG.warning(
                    "round not reopened",
                    extra={"job": self._job.job_id, "round": plan.round, "why": again.reason},
                )
                return again
            collected = collector.trajectories()
        if self._usable(plan, collected):
            return collected
        if collector.doomed or collector.all_blaming:
            raise environment_failed(plan, collector)
        and_yet = ", and reopening it did not help" if self._parts.max_reopenings else ""
        raise round_lost(
            plan,
            collector,
            failures=collected.failures,
            env_id=self._job.spec.env_id,
            history=f"{max(1, plan.quorum)} are needed{and_yet}",
        )

    def _relaunch(
        self, plan: RoundPlan, collector: RoundCollector, collected: CollectedRound
    ) -> None:
        """Count a launch of what vanished."""
        if self._relaunches_left == 0:
            raise round_lost(
                plan,
                collector,
                failures=collected.failures,
                env_id=self._job.spec.env_id,
                history=f"although what vanished was launched again {_MOST_RELAUNCHES} times",
            )
        self._relaunches_left -= 1

    def _reopen(
        self, collector: RoundCollector, missing: tuple[int, ...], why: Sequence[str]
    ) -> RoundPlan:
        """Have these actors, and episodes that vanished, launched again."""
        round_index = self._session.state.next_round
        _LOG.warning(
            "round reopened",
            extra={
                "job": self._job.job_id,
                "round": round_index,
                "missing": len(missing),
                "episodes": len(collector.vanished_episodes),
                "why": why,
            },
        )
        episodes = collector.vanished_episodes
        collector.prepare_reopening()
        # It may be what they missed: keys expire, also while the machine is asleep.
        self._publish()
        again = self._open_round(collector.attempt + 1, missing, episodes)
        collector.reopen(again)
        return again

    def _usable(self, plan: RoundPlan, collected: CollectedRound) -> bool:
        self._leave_if_asked(collected)
        # Never train on nothing, whatever the quorum says.
        return len(collected.trajectories) >= max(1, plan.quorum)

    def _leave_if_asked(self, collected: CollectedRound) -> None:
        lease = self._parts.lease
        if collected.missing and lease.should_leave:
            raise LeftEarly("asked to leave while a round was collected", stop=lease.stop)

    def _finish(self, plan: RoundPlan) -> EvaluationResult | None:
        collector = self._collector(plan)
        evaluation = self._evaluated(plan, collector)
        collector.close()
        self._session.record_end(plan, evaluation)
        self._session.forget_policy(plan.policy_version)
        return evaluation

    def _evaluated(self, plan: RoundPlan, collector: RoundCollector) -> EvaluationResult | None:
        episodes = collector.episodes()
        lease = self._parts.lease
        # Without them the round goes on: they are not learned from.
        while collector.vanished_episodes and self._relaunches_left and not lease.must_leave:
            self._relaunches_left -= 1
            self._reopen(collector, (), ("evaluation episodes vanished",))
            episodes = collector.episodes()
        if lease.lost or (lease.interrupted and not collector.all_episodes_answered):
            raise LeftEarly("asked to leave before the round was done")
        return evaluation_result(plan, episodes)
