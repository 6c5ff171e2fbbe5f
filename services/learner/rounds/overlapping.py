"""Training one job off-policy, with several rounds open at a time.

    open rounds 0 .. m-1 ──▶ learn from whatever arrives, replay while nothing does ◀──┐
                                   │ the oldest round, k, is over                      │
                                   ▼                                                   │
          curvature ──▶ record, checkpoint ──▶ publish policy, open round k + m ───────┘
                                                 (with the result of round k)

Rounds end in order, one at a time, and each that ends opens one: `m` stay open. A round is over
when all its actors have answered, at its deadline, or when the job is asked to stop; what its
actors bring after that comes late. Only then is the policy published anew: the *version* counts
updates, and those versions are published that a round is opened with: nobody fetches another.

The scaler ends the job with the plan of some round. Rounds open by then are still learned from; the
plans asked for when they end say stop too, and the last of these brings the final evaluation.

A checkpoint is written when a round is over. It knows what was used of the rounds still open,
which a learner that resumes asks for again: their plans and actors are the same, what had been used
is not used again, and everything that arrived since is in the cache. Updates depend on the order
trajectories arrive in, so unlike in synchronous rounds no two runs need be equal.
"""

from collections.abc import Collection

from learning.algorithms.algorithm import OffPolicyAlgorithm
from learning.algorithms.policy_update import UpdateTally
from services.learner.record.checkpoint import OpenRound, RunState
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.session import RoundSession, evaluation_result
from services.learner.rounds.window import OpenedRound, RoundWindow
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult, RoundResult, TrajectoryCounts
from shared.trajectory.trajectory import Trajectory

_LONGEST_WAIT_S = 1.0
"""One blocking wait; between two of them the learner looks whether it should leave."""


class OverlappingRounds(RoundSession[OffPolicyAlgorithm]):
    """Trains one job with several rounds open at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._policies = dict(self.earlier_policies)
        self._version = self.state.policy_version
        self._window = RoundWindow(self.cache, self.job, must_leave=lambda: self.lease.must_leave)
        self._tally = UpdateTally()

    def run(self) -> tuple[StopReason, EvaluationResult | None]:
        """Train, learning from whatever arrives."""
        self.algorithm.advance(self._version)
        first, recorded = self.state.next_round, self.state.open_rounds
        if first:
            # Whoever saved the round may have died before it was freed.
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
        """Ask for a round; one that was asked for before, with what it was asked for with then.

        A plan that is still known is repeated. One that was forgotten, as those that ended the job
        are when it goes on, is made anew, and a measurement that came with it counts again.
        """
        self._leave_if_must()
        previous = self.state.previous
        if previous is not None and previous.round != index - self.job.spec.open_rounds:
            # Rounds asked for again after a resume bring no result: it was told before.
            previous = None
        before = recorded or OpenRound(
            round=index,
            policy_version=self._version,
            curvature=None if previous is None else self.state.curvature,
            taken=(),
            env_steps=0,
            episode_returns=(),
        )
        self._publish(before.policy_version)
        plan = self.ask(
            index,
            policy_version=before.policy_version,
            curvature=before.curvature,
            previous=previous,
        )
        self._window.open(plan, before)
        self.clock.lap("plan_s")

    def _publish(self, version: int) -> None:
        if version == self._version:
            self._policies[version] = self.policy_for_actors()
        # Also one that was there before: keys expire.
        self.cache.publish_policy(self.job.job_id, version, self._policies[version])

    def _learn_until_the_oldest_is_over(self) -> None:
        algorithm, oldest = self.algorithm, self._window.oldest
        while not (oldest.over or self.lease.stop is not None):
            self._leave_if_must()
            if algorithm.in_order:
                self._window.listen(timeout_s=min(oldest.collector.remaining_s, _LONGEST_WAIT_S))
            else:
                self._learn(oldest)
            if oldest.collector.doomed:
                raise environment_failed(oldest.collector)
        oldest.collector.look_again()
        # Nothing more of younger rounds is taken in until the next round is open: learned from
        # first, it would leave actors idle, and all open rounds would fall into step.
        self._take_in(oldest.fresh())
        algorithm.flush()
        while algorithm.has_fresh:
            self._leave_if_must()
            self._update()

    def _learn(self, oldest: OpenedRound) -> None:
        """Take in what arrived and update once; wait only when there is nothing to update with."""
        algorithm = self.algorithm
        wait_s = 0.0 if algorithm.ready else min(oldest.collector.remaining_s, _LONGEST_WAIT_S)
        arrived = self._window.arrivals(timeout_s=wait_s)
        if arrived:
            self._take_in(arrived)
        if algorithm.has_fresh or (algorithm.ready and not arrived):
            self._update()

    def _take_in(self, trajectories: tuple[Trajectory, ...]) -> None:
        self.keep(trajectories)
        self.algorithm.add(trajectories)

    def _update(self) -> None:
        """Update once. Replays fill the time in which actors are waited for, and count as that."""
        self.clock.lap("collect_s")
        fresh = self.algorithm.has_fresh
        self._tally.add(self.algorithm.update())
        self._version += 1
        self.algorithm.advance(self._version)
        self.clock.lap("update_s" if fresh else "collect_s")

    def _close_oldest(self) -> None:
        closed = self._window.close_oldest()
        self.clock.lap("collect_s")
        curvature = self.measurement(closed.plan)
        evaluation = self._evaluation(closed)
        result = self._result(closed, closed.collector.close(), evaluation)
        state = RunState(
            next_round=closed.plan.round + 1,
            policy_version=self._version,
            curvature=curvature,
            previous=result,
            open_rounds=tuple(opened.state for opened in self._window),
            empty_rounds=self._empty_rounds(closed, result),
        )
        fetched = {opened.policy_version for opened in state.open_rounds}
        policies = {version: self._policies[version] for version in fetched}
        self.save(closed.plan, result, state, policies)
        self.cache.free_round(self.job.job_id, closed.plan.round)
        self._forget_policies(keep=fetched | {self._version})

    def _result(
        self, closed: OpenedRound, counts: TrajectoryCounts, evaluation: EvaluationResult | None
    ) -> RoundResult:
        return RoundResult(
            round=closed.plan.round,
            policy_version=self._version,
            trajectories=counts,
            env_steps=closed.state.env_steps,
            episode_returns=closed.state.episode_returns,
            dropped_episodes=closed.state.dropped_episodes,
            begun_anew=self.take_begun_anew(),
            lost_replays=self.take_lost_replays(),
            evaluation=evaluation,
            stats=self._tally.take(),
            gradients=self.close_gradients(),
            own=self.own_work(closed.plan.round),
            timing=self.clock.take(),
        )

    def _empty_rounds(self, closed: OpenedRound, result: RoundResult) -> int:
        """Return how many rounds in a row brought nothing.

        Raises:
            RoundLostError: Too many of them, although nobody asked the job to stop.
        """
        if result.trajectories.used:
            return 0
        empty = self.state.empty_rounds + 1
        # Those open when the first went wrong were launched like it: only one more is news.
        most = self.job.spec.open_rounds
        if empty > most and self.lease.stop is None:
            if closed.collector.all_blaming:
                raise environment_failed(closed.collector)
            history = f"nor did any in the {most} rounds before it"
            raise round_lost(closed.collector, spec=self.job.spec, history=history)
        return empty

    def _evaluation(self, closed: OpenedRound) -> EvaluationResult | None:
        collector = closed.collector
        if not collector.all_episodes_answered and collector.remaining_s > 0.0:
            # The job stops. The episodes that end first are short ones: their mean would mislead.
            return None
        return evaluation_result(closed.plan, collector.episodes())

    def _forget_policies(self, *, keep: Collection[int]) -> None:
        for version in sorted(self._policies.keys() - set(keep)):
            self.cache.delete_policy(self.job.job_id, version)
            del self._policies[version]

    def _finish(self) -> tuple[StopReason, EvaluationResult | None]:
        """Evaluate the final policy; every open plan says stop by now."""
        final = self._window.newest
        plan = final.plan
        if plan.stop is None:
            raise RuntimeError(f"round {plan.round} was planned after one that ended the job")
        evaluation = evaluation_result(plan, final.collector.episodes())
        self._leave_if_must()
        final.collector.close()
        for opened in self._window:
            self.record_end(opened.plan, evaluation if opened is final else None)
        self._forget_policies(keep=())
        return plan.stop, evaluation

    def _leave_if_must(self) -> None:
        self.leave_if_must("while rounds were open")
