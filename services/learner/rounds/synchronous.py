"""Training one job, round by round.

    publish policy v ──▶ ask the scaler for round k ──▶ collect ──▶ update ──▶ measure curvature
          ▲                (plan: actors, deadline,        │                          │
          │                 quorum, or why to stop)        ▼                          ▼
          └───────────── checkpoint ◀── record ◀── evaluation episodes, close the round

`RoundSession` and `JobRounds` define the steps; this file defines their order.
"""

import math
from collections.abc import Iterator

from learning.algorithms.algorithm import learn_round
from learning.algorithms.policy_update import PolicyUpdate, summary
from services.learner.record.checkpoint import RunState
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.search_collector import SearchCollector
from services.learner.rounds.session import RoundSession
from services.learner.rounds.window import OpenedRound
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult, RoundPlan
from shared.hyperparameters.search import SearchHyperparameters
from shared.trajectory.trajectory import Trajectory


class SynchronousRounds(RoundSession):
    """Trains one job with one round open at a time."""

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train round by round."""
        while True:
            state = self.state
            self.rounds.publish(state.policy_version, self.policy_for_actors())
            self.rounds.leave_if_must("between two rounds")
            plan = self.ask(
                state.next_round,
                policy_version=state.policy_version,
                curvature=state.curvature,
                previous=state.previous,
            )
            self._forget_last_round()
            self.clock.lap("plan_s")
            ended = self._finish(plan) if plan.stop is not None else self._train_round(plan)
            if ended is not None:
                return ended

    def _train_round(self, plan: RoundPlan) -> tuple[StopReason, EvaluationResult | None] | None:
        """Train one round; return the job's end if it ends instead."""
        rounds = self.rounds
        opened = rounds.open(plan)
        ending = rounds.collect(opened)
        if ending is not None:
            return self._finish(ending)
        trajectories = self._collected(opened)
        ended = self._ended_by_target(opened)
        if ended is not None:
            return "target_return", ended
        self.open_gradients(plan.round)
        updates = [learn_round(self.algorithm, trajectories)]
        gradients = self.close_gradients()
        self.clock.lap("update_s")
        updates += self._further_iterations(opened)
        opened.collector.end()
        version = plan.policy_version + len(updates)
        curvature, measured = self.measurement(plan)
        evaluation = rounds.evaluated(opened)
        counts = opened.collector.close()
        self.clock.lap("evaluate_s")
        result = rounds.result(
            opened,
            counts,
            policy_version=version,
            evaluation=evaluation,
            stats=summary([update.stats for update in updates]) | measured,
            timing=self.clock.take(),
            gradients=gradients,
        )
        state = RunState(
            next_round=plan.round + 1,
            policy_version=version,
            curvature=curvature,
            previous=result,
        )
        self.save(plan, result, state)
        return None

    def _collected(self, opened: OpenedRound) -> tuple[Trajectory, ...]:
        trajectories = opened.fresh()
        self.rounds.keep(trajectories)
        self.clock.lap("collect_s")
        return trajectories

    def _further_iterations(self, opened: OpenedRound) -> Iterator[PolicyUpdate]:
        """Train the iterations of a search's round after its first, and yield their updates.

        If the job is to end, the round ends with the iterations before. A learner that leaves for
        another reason leaves all of them: the next one has the same results from the cache.
        """
        done = 1
        while self._begins_next_iteration(opened, done):
            try:
                if self.rounds.collect(opened) is not None:
                    return
            except LeftEarly as left:
                if left.stop is None:
                    raise
                return
            yield learn_round(self.algorithm, self._collected(opened))
            self.clock.lap("update_s")
            done += 1

    def _begins_next_iteration(self, opened: OpenedRound, done: int) -> bool:
        """Begin another iteration of a search's round; return whether there is one."""
        collector, stop = opened.collector, self.job.spec.stop
        if not isinstance(collector, SearchCollector):
            return False
        rule = self.job.hyperparameters
        assert isinstance(rule, SearchHyperparameters), "nothing else searches"
        steps = self.env_steps + opened.state.env_steps
        if done == rule.most_iterations or (stop.max_env_steps or math.inf) <= steps:
            return False
        if stop.ending_steps is not None and not collector.has_time:
            return False  # a job that rounds end would have other weights with less time
        collector.next_iteration(self.policy_for_actors())
        return True

    def _ended_by_target(self, opened: OpenedRound) -> EvaluationResult | None:
        """End the job without an update if the round's policy reached the target.

        The initial policy does not count: it has no checkpoint.
        """
        plan, target = opened.plan, self.job.spec.stop.target_return
        if target is None or not plan.num_evaluations or not plan.round:
            return None
        evaluation = self.rounds.evaluated(opened)
        self.clock.lap("evaluate_s")
        if evaluation is None or len(evaluation.returns) < plan.num_evaluations:
            return None  # the short episodes come first
        mean_return = evaluation.mean_return
        if mean_return is None or mean_return < target:
            return None
        opened.collector.close()
        why = f"evaluation return {mean_return:g} reached the target {target:g}"
        ended = plan.model_copy(update={"stop": "target_return", "reason": why})
        self.record_end(ended, evaluation)
        self.cache.delete_policy(self.job.job_id, plan.policy_version)
        return evaluation

    def _forget_last_round(self) -> None:
        state = self.state
        if state.next_round:
            self.cache.free_round(self.job.job_id, state.next_round - 1)
            self.cache.delete_policy(self.job.job_id, state.policy_version - 1)

    def _finish(self, plan: RoundPlan) -> tuple[StopReason, EvaluationResult | None]:
        """End the job with its final plan, and evaluate the final policy."""
        if plan.stop is None:
            raise RuntimeError(f"round {plan.round} does not end the job")
        opened = self.rounds.open(plan)
        evaluation = self.rounds.evaluated(opened)
        opened.collector.close()
        self.record_end(plan, evaluation)
        self.cache.delete_policy(self.job.job_id, plan.policy_version)
        return plan.stop, evaluation
