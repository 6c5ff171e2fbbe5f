"""Several rounds open at a time: fragments one by one, as they arrive, each with its version.

    open rounds 0 .. m-1 ──▶ hand over whatever arrives ◀────────────────────────────┐
                                   │ the oldest round, k, is over                     │
                                   ▼                                                  │
                       publish the policy as version k + m, open round k + m ─────────┘

It does what the learner's `OverlappingRounds` does but for learning and checkpoints. A round's
actors fetch the policy that was published when it was opened.
"""

import time
from collections.abc import Callable, Iterator

from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from nitro.pool.round_calls import RoundCalls
from services.learner.record.checkpoint import OpenRound
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.window import OpenedRound, RoundWindow
from shared.contracts.rounds import EvaluationResult, RoundResult, RoundTiming
from shared.trajectory.trajectory import Trajectory

_LONGEST_WAIT_S = 1.0
"""One blocking wait; between two of them the pool looks whether it should stop."""


class OverlappingFragments:
    """A job's fragments, with `rounds_in_flight` rounds open; use it from one thread."""

    def __init__(self, calls: RoundCalls) -> None:
        self._calls = calls
        self._job_id = calls.job.job_id
        self._window = RoundWindow(
            calls.cache, calls.job, must_leave=lambda: calls.lease.must_leave
        )
        self._policies: dict[int, Policy] = {}
        """Of open rounds, by version."""
        self._previous: RoundResult | None = None
        self._empty_rounds = 0
        self._waited_s = self._used_s = 0.0
        self.policy_version = -1
        """The newest that was published."""

    @property
    def has_begun(self) -> bool:
        """Whether a round was opened."""
        return self.policy_version >= 0

    def fragments(
        self, policy: Callable[[], Policy], *, most_rounds: int | None
    ) -> Iterator[Batch]:
        """Yield fragments in the order they arrive, until the job ends or all rounds are over.

        Args:
            policy: Returns the newest policy, whenever a round is opened.
            most_rounds: How many rounds are opened at most; None leaves it to the job.

        Raises:
            PoolStopped: The lease was lost.
            RoundLostError: Nothing came of several rounds in a row.
        """
        calls, last = self._calls, most_rounds
        calls.require_open()
        opened = calls.spec.open_rounds if last is None else min(last, calls.spec.open_rounds)
        for index in range(opened):
            self._open(index, policy())
        while self._going_on():
            yield from self._of_the_oldest()
            over = self._close_oldest()
            following = over + calls.spec.open_rounds
            if last is None or following < last:
                self._open(following, policy())
        if any(self._window):
            calls.finish(self._window.newest.plan)

    def _going_on(self) -> bool:
        return any(self._window) and self._window.oldest.plan.stop is None

    def _open(self, index: int, policy: Policy) -> None:
        """Publish the policy as a version of its own, and ask for a round with it."""
        calls, previous = self._calls, self._previous
        if previous is not None and previous.round != index - calls.spec.open_rounds:
            previous = None
        payload = policy.encoded(calls.environment)
        calls.publish(index, payload)
        self._policies[index] = policy
        plan = calls.ask(index, index, previous)
        self.policy_version = index
        before = OpenRound(
            round=index, policy_version=index, taken=(), env_steps=0, episode_returns=()
        )
        self._window.open(plan, before)

    def _of_the_oldest(self) -> Iterator[Batch]:
        """Yield what arrives, of whichever round, until the oldest is over."""
        calls, oldest = self._calls, self._window.oldest
        while not (oldest.over or calls.lease.stop is not None):
            calls.require_held()
            if oldest.collector.doomed:
                raise environment_failed(oldest.collector)
            started = time.perf_counter()
            wait_s = min(oldest.collector.remaining_s, _LONGEST_WAIT_S)
            arrived = self._window.arrivals(timeout_s=wait_s)
            self._waited_s += time.perf_counter() - started
            yield from self._handed_over(arrived)
        oldest.collector.look_again()
        yield from self._handed_over(oldest.fresh())

    def _handed_over(self, trajectories: tuple[Trajectory, ...]) -> Iterator[Batch]:
        calls = self._calls
        calls.keep(trajectories)
        launched = {each.plan.round: each.plan.num_actors for each in self._window}
        for trajectory in trajectories:
            started = time.perf_counter()
            yield batch_of(
                (trajectory,),
                calls.environment,
                policy=self._policies[trajectory.policy_version],
                num_launched=launched[trajectory.round],
                bill=calls.bills.of(trajectory.round),
            )
            self._used_s += time.perf_counter() - started

    def _close_oldest(self) -> int:
        """Close the oldest round, with its result; return its number."""
        closed, calls = self._window.close_oldest(), self._calls
        collector, plan = closed.collector, closed.plan
        evaluation = None
        if collector.all_episodes_answered or collector.remaining_s == 0.0:
            evaluation = calls.evaluated(collector)
        self._previous = self._result(closed, evaluation)
        calls.cache.free_round(self._job_id, plan.round)
        calls.cache.delete_policy(self._job_id, plan.policy_version)
        del self._policies[plan.policy_version]
        self._require_some(closed, self._previous)
        return plan.round

    def _result(self, closed: OpenedRound, evaluation: EvaluationResult | None) -> RoundResult:
        waited_s, self._waited_s = self._waited_s, 0.0
        used_s, self._used_s = self._used_s, 0.0
        timing = RoundTiming(
            plan_s=0.0,
            collect_s=waited_s,
            update_s=used_s,
            curvature_s=0.0,
            evaluate_s=0.0,
            checkpoint_s=0.0,
            total_s=waited_s + used_s,
        )
        return RoundResult(
            round=closed.plan.round,
            policy_version=self.policy_version,
            trajectories=closed.collector.close(),
            env_steps=closed.state.env_steps,
            episode_returns=closed.state.episode_returns,
            dropped_episodes=closed.state.dropped_episodes,
            begun_anew=self._calls.release(closed.plan.round),
            lost_replays=self._calls.take_lost_replays(),
            evaluation=evaluation,
            stats=self._calls.report.stats,
            own=self._calls.own_work(closed.plan.round),
            timing=timing,
        )

    def _require_some(self, closed: OpenedRound, result: RoundResult) -> None:
        """Give up when several rounds in a row brought nothing.

        Raises:
            RoundLostError: They did, and nobody asked to stop.
        """
        calls, collector = self._calls, closed.collector
        self._empty_rounds = 0 if result.trajectories.used else self._empty_rounds + 1
        most = calls.spec.open_rounds
        if self._empty_rounds <= most or calls.lease.stop is not None:
            return
        if collector.all_blaming:
            raise environment_failed(collector)
        history = f"nor did any in the {most} rounds before it"
        raise round_lost(collector, spec=calls.spec, history=history)
