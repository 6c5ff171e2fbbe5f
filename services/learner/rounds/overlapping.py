"""Training one job off-policy, with several rounds open at a time.

    open rounds 0 .. m-1 ──▶ learn from whatever arrives, replay while nothing does ◀──┐
                                   │ the oldest round, k, is over                      │
                                   ▼                                                   │
          curvature ──▶ record, checkpoint ──▶ publish policy, open round k + m ───────┘
                                                 (with the result of round k)

Rounds end in order, one at a time, and each that ends opens one: `m` stay open. A round is over
when all its actors have answered, at its deadline, or when the job is asked to stop; later results
are late. Only then is the next policy published: the *version* counts updates, and only versions
that open a round are published.

The scaler ends the job with the plan of some round. The learner still uses rounds that are open by
then. The plans at their ends say stop, too, and the last of them has the final evaluation.

A checkpoint is written when a round is over. It records the used trajectories of open rounds. A
learner that resumes requests these rounds again: plans and actors are the same, used trajectories
are not used again, and all later arrivals are in the cache. Updates depend on the order of arrival,
so runs may differ.

An algorithm that learns *in order*, such as SAC, uses only the oldest round, once it is complete.
Then no open round has used trajectories, and what vanishes from the oldest is launched again, as if
rounds did not overlap. Runs with equal seeds are equal. When the job is asked to stop, the learner
drops an incomplete round and makes no final evaluation. So a job that is resumed later has the
weights of one that never stopped.
"""

from collections.abc import Collection

from learning.algorithms.policy_update import UpdateTally
from services.learner.record.checkpoint import OpenRound, RunState
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.session import RoundSession
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult
from shared.trajectory.trajectory import Trajectory


class OverlappingRounds(RoundSession):
    """Trains one job with several rounds open at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._policies = dict(self.earlier_policies)
        self._version = self.state.policy_version
        self._window = self.rounds.window()
        self._tally = UpdateTally()
        self._in_order = self.job.spec.learns_in_order

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train on trajectories as they arrive."""
        self.algorithm.advance(self._version)
        first, recorded = self.state.next_round, self.state.open_rounds
        if first:
            # An earlier learner may have died between saving and freeing the round.
            self.cache.free_round(self.job.job_id, first - 1)
        for index in range(first, first + self.job.spec.open_rounds):
            at = index - first
            self._open(index, recorded[at] if at < len(recorded) else None)
        while self._window.oldest.plan.stop is None:
            self.open_gradients(self._window.oldest.plan.round)
            self._learn_until_the_oldest_is_over()
            self._close_oldest()
            self._open(self.state.next_round - 1 + self.job.spec.open_rounds)
        return self._finish()

    def _open(self, index: int, recorded: OpenRound | None = None) -> None:
        """Request a round; a repeated request has its original content.

        The scaler repeats a known plan. A forgotten plan, such as one that ended the job before a
        resume, is made again, and its measurement counts again.
        """
        self._leave_if_must()
        previous = self.state.previous
        if previous is not None and previous.round != index - self.job.spec.open_rounds:
            # Repeated requests after a resume have no result: it was already reported.
            previous = None
        before = recorded or OpenRound(
            round=index,
            policy_version=self._version,
            curvature=None if previous is None else self.state.curvature,
        )
        self._publish(before.policy_version)
        plan = self.ask(
            index,
            policy_version=before.policy_version,
            curvature=before.curvature,
            previous=previous,
        )
        self._window.add(self.rounds.open(plan, before))
        self.clock.lap("plan_s")

    def _publish(self, version: int) -> None:
        if version == self._version:
            self._policies[version] = self.policy_for_actors()
        self.rounds.publish(version, self._policies[version])

    def _learn_until_the_oldest_is_over(self) -> None:
        algorithm, oldest = self.algorithm, self._window.oldest
        if self._in_order:
            # Its deadline may have passed during an update, unlike that of the only open round.
            oldest.collector.look_again()
            ending = self.rounds.collect(oldest)
            if ending is not None:
                raise LeftEarly(ending.reason, stop=ending.stop)
        else:
            for arrived in self.rounds.arrivals(self._window, waits=lambda: not algorithm.ready):
                if arrived:
                    self._take_in(arrived)
                if algorithm.has_fresh or (algorithm.ready and not arrived):
                    self._update()
        # Younger rounds are not read until the next round is open: otherwise actors would idle, and
        # all open rounds would synchronise.
        self._take_in(oldest.fresh())
        algorithm.flush()
        while algorithm.has_fresh:
            self._leave_if_must()
            self._update()

    def _take_in(self, trajectories: tuple[Trajectory, ...]) -> None:
        self.rounds.keep(trajectories)
        self.algorithm.add(trajectories)

    def _update(self) -> None:
        """Update once. Replays fill the waiting time for actors, and count as waiting."""
        self.clock.lap("collect_s")
        fresh = self.algorithm.has_fresh
        self._tally.add(self.algorithm.update())
        self._version += 1
        self.algorithm.advance(self._version)
        self.clock.lap("update_s" if fresh else "collect_s")

    def _close_oldest(self) -> None:
        closed = self._window.close_oldest()
        self.clock.lap("collect_s")
        curvature, measured = self.measurement(closed.plan)
        evaluation = self.rounds.evaluated(closed) if self._in_order else closed.evaluation()
        self.clock.lap("evaluate_s")
        result = self.rounds.result(
            closed,
            closed.collector.close(),
            policy_version=self._version,
            evaluation=evaluation,
            stats=self._tally.take() | measured,
            timing=self.clock.take(),
            gradients=self.close_gradients(),
        )
        state = RunState(
            next_round=closed.plan.round + 1,
            policy_version=self._version,
            curvature=curvature,
            previous=result,
            open_rounds=tuple(opened.state for opened in self._window),
            empty_rounds=self.rounds.empty_rounds(closed, before=self.state.empty_rounds),
        )
        fetched = {opened.policy_version for opened in state.open_rounds}
        policies = {version: self._policies[version] for version in fetched}
        self.save(closed.plan, result, state, policies)
        self.cache.free_round(self.job.job_id, closed.plan.round)
        self._forget_policies(keep=fetched | {self._version})

    def _forget_policies(self, *, keep: Collection[int]) -> None:
        for version in sorted(self._policies.keys() - set(keep)):
            self.cache.delete_policy(self.job.job_id, version)
            del self._policies[version]

    def _finish(self) -> tuple[StopReason, EvaluationResult | None]:
        """Evaluate the final policy; every open plan says stop by now."""
        final = self._window.newest
        plan = final.plan
        if plan.stop is None:
            # A relaunch was refused, and the learner died before it could end the job.
            oldest = self._window.oldest.plan
            raise LeftEarly(oldest.reason, stop=oldest.stop)
        evaluation = self.rounds.evaluated(final)
        final.collector.close()
        for opened in self._window:
            self.record_end(opened.plan, evaluation if opened is final else None)
        self._forget_policies(keep=())
        return plan.stop, evaluation

    def _leave_if_must(self) -> None:
        self.rounds.leave_if_must("while rounds were open")
