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
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.session import RoundSession, evaluation_result
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult, RoundPlan, RoundResult

_LOG = logging.getLogger(__name__)
_MOST_RELAUNCHES = 3
"""How often what vanished of a round is launched again: a part that ends each time needs repair."""


class SynchronousRounds(RoundSession[Algorithm]):
    """Trains one job with one round open at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._published = b""
        """The policy of the round in hand, also while the next one is made of it."""
        self._relaunches_left = _MOST_RELAUNCHES
        """Of the round in hand."""
        self._at_target: EvaluationResult | None = None
        """Of the policy that has reached the job's target."""

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train, one round after the other."""
        while True:
            self._published = self.policy_for_actors()
            self._publish()
            self.leave_if_must("between two rounds")
            plan = self._open_round()
            self._forget_last_round()
            self.clock.lap("plan_s")
            ending = plan if plan.stop is not None else self._train_round(plan)
            if ending is not None and ending.stop is not None:
                return ending.stop, self._at_target or self._finish(ending)

    def _train_round(self, plan: RoundPlan) -> RoundPlan | None:
        """Train one round; return the plan that ends the job instead, if that came of it."""
        collector = self._collector(plan)
        ending = self._collect(collector)
        if ending is not None:
            return ending
        trajectories = collector.trajectories()
        self.keep(trajectories)
        self.clock.lap("collect_s")
        ending = self._ended_by_target(collector)
        if ending is not None:
            return ending
        self.open_gradients(plan.round)
        update = self.algorithm.update(trajectories)
        gradients = self.close_gradients()
        self.clock.lap("update_s")
        curvature = self.measurement(plan)
        evaluation = self._evaluated(collector)
        counts = collector.close()
        self.clock.lap("evaluate_s")
        result = RoundResult(
            round=plan.round,
            policy_version=plan.policy_version + 1,
            trajectories=counts,
            env_steps=sum(t.num_steps for t in trajectories),
            episode_returns=tuple(float(r) for t in trajectories for r in t.episode_returns),
            dropped_episodes=sum(t.dropped_episodes for t in trajectories),
            begun_anew=self.take_begun_anew(),
            lost_replays=self.take_lost_replays(),
            evaluation=evaluation,
            stats=update.stats,
            gradients=gradients,
            own=self.own_work(plan.round),
            timing=self.clock.take(),
        )
        state = RunState(
            next_round=plan.round + 1,
            policy_version=plan.policy_version + 1,
            curvature=curvature,
            previous=result,
        )
        self.save(plan, result, state)
        return None

    def _ended_by_target(self, collector: RoundCollector) -> RoundPlan | None:
        """End the job with the policy of the round, without an update, if it reached the target.

        The initial policy goes on: it has no checkpoint.
        """
        plan, target = collector.plan, self.job.spec.stop.target_return
        if target is None or not plan.num_evaluations or not plan.round:
            return None
        evaluation = self._evaluated(collector)
        self.clock.lap("evaluate_s")
        if evaluation is None or len(evaluation.returns) < plan.num_evaluations:
            return None  # the short episodes come first
        mean_return = evaluation.mean_return
        if mean_return is None or mean_return < target:
            return None
        collector.close()
        why = f"evaluation return {mean_return:g} reached the target {target:g}"
        ended = plan.model_copy(update={"stop": "target_return", "reason": why})
        self._at_target = evaluation
        self.record_end(ended, evaluation)
        self.cache.delete_policy(self.job.job_id, plan.policy_version)
        return ended

    def _publish(self) -> None:
        """Put the policy where actors fetch it, also one that was there before: keys expire."""
        self.cache.publish_policy(self.job.job_id, self.state.policy_version, self._published)

    def _forget_last_round(self) -> None:
        state = self.state
        if state.next_round:
            self.cache.free_round(self.job.job_id, state.next_round - 1)
            self.cache.delete_policy(self.job.job_id, state.policy_version - 1)

    def _open_round(
        self,
        attempt: int = 0,
        missing: tuple[int, ...] | None = None,
        missing_evaluations: tuple[int, ...] = (),
    ) -> RoundPlan:
        state = self.state
        return self.ask(
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
            self.cache,
            plan,
            self.job.described_environment,
            steps_per_actor=self.job.spec.steps_of(plan.num_actors),
            envs_per_actor=self.job.spec.envs_per_actor,
            should_leave=lambda: self.lease.should_leave,
            must_leave=lambda: self.lease.must_leave,
        )

    def _collect(self, collector: RoundCollector) -> RoundPlan | None:
        """Collect a usable round, opening it again for what is missing if it must be.

        Actors that vanished have not failed: they are launched again, so that a restart does not
        change what is learned from.

        Returns:
            The plan that ends the job, where the round may not be opened again.

        Raises:
            RoundLostError: Too little came, or actors vanished time after time.
        """
        plan, left = collector.plan, self.max_reopenings
        collector.trajectories()
        while collector.vanished or (left and not self._usable(collector)):
            self._leave_if_asked(collector)
            if collector.doomed:
                raise environment_failed(collector)
            if collector.vanished:
                self._relaunch(collector)
            else:
                left -= 1
            again = self._reopen(collector, collector.missing, collector.failures)
            if again.stop is not None:
                _LOG.warning(
                    "round not reopened",
                    extra={"job": self.job.job_id, "round": plan.round, "why": again.reason},
                )
                return again
            collector.trajectories()
        if self._usable(collector):
            return None
        if collector.doomed or collector.all_blaming:
            raise environment_failed(collector)
        and_yet = ", and reopening it did not help" if self.max_reopenings else ""
        history = f"{max(1, plan.quorum)} are needed{and_yet}"
        raise round_lost(collector, spec=self.job.spec, history=history)

    def _relaunch(self, collector: RoundCollector) -> None:
        """Count a launch of what vanished."""
        if self._relaunches_left == 0:
            history = f"although what vanished was launched again {_MOST_RELAUNCHES} times"
            raise round_lost(collector, spec=self.job.spec, history=history)
        self._relaunches_left -= 1

    def _reopen(
        self, collector: RoundCollector, missing: tuple[int, ...], why: Sequence[str]
    ) -> RoundPlan:
        """Have these actors, and episodes that vanished, launched again."""
        episodes = collector.vanished_episodes
        _LOG.warning(
            "round reopened",
            extra={
                "job": self.job.job_id,
                "round": collector.plan.round,
                "missing": len(missing),
                "episodes": len(episodes),
                "why": why,
            },
        )
        collector.prepare_reopening()
        # It may be what they missed: keys expire, also while the machine is asleep.
        self._publish()
        again = self._open_round(collector.attempt + 1, missing, episodes)
        collector.reopen(again)
        return again

    def _usable(self, collector: RoundCollector) -> bool:
        self._leave_if_asked(collector)
        # Never train on nothing, whatever the quorum says.
        return len(collector.used) >= max(1, collector.plan.quorum)

    def _leave_if_asked(self, collector: RoundCollector) -> None:
        if collector.missing and self.lease.should_leave:
            raise LeftEarly("asked to leave while a round was collected", stop=self.lease.stop)

    def _finish(self, plan: RoundPlan) -> EvaluationResult | None:
        collector = self._collector(plan)
        evaluation = self._evaluated(collector)
        collector.close()
        self.record_end(plan, evaluation)
        self.cache.delete_policy(self.job.job_id, plan.policy_version)
        return evaluation

    def _evaluated(self, collector: RoundCollector) -> EvaluationResult | None:
        episodes, lease = collector.episodes(), self.lease
        # Without them the round goes on: they are not learned from.
        while collector.vanished_episodes and self._relaunches_left and not lease.must_leave:
            self._relaunches_left -= 1
            self._reopen(collector, (), ("evaluation episodes vanished",))
            episodes = collector.episodes()
        if lease.lost or (lease.interrupted and not collector.all_episodes_answered):
            raise LeftEarly("asked to leave before the round was done")
        return evaluation_result(collector.plan, episodes)
