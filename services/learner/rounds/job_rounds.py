"""The client side of one job's rounds: ask, collect, relaunch, evaluate, close.

    publish policy ──▶ ask ──▶ open ──▶ collect ──▶ (the caller learns) ──▶ evaluate ──▶ result

    | step     | waits for                        | ended by                              |
    |----------|----------------------------------|---------------------------------------|
    | ask      | the scaler's answer              | the scaler, or a time-out             |
    | collect  | one answer per launched actor    | actors, the scaler for failed ones,   |
    |          |                                  | the deadline, a stop or lost lease    |
    | evaluate | the episodes of this round       | the same, except for a stop           |

The learner's sessions and the loops of an `ActorPool` are its callers. They choose the order of
these steps, and learn in between. It needs no torch.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from services.learner.own.rollouts import OwnRollouts
from services.learner.record.checkpoint import OpenRound
from services.learner.rounds.collector import RoundCollector
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.lost_round import environment_failed, round_lost
from services.learner.rounds.streams import Streams
from services.learner.rounds.window import (
    MOST_RELAUNCHES,
    OpenedRound,
    RoundWindow,
    opened_round,
)
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.client import TrajectoryCache
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import Job
from shared.contracts.rounds import (
    EvaluationResult,
    RoundPlan,
    RoundRequest,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)
from shared.trajectory.trajectory import Trajectory

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_S = 1.0
"""One blocking wait; between two waits it checks whether to leave."""


@dataclass(kw_only=True, eq=False)
class JobRounds:
    """The rounds of one leased job; use it from one thread."""

    job: Job
    scaler: ScalerClient
    cache: TrajectoryCache
    lease: HeldLease
    streams: Streams
    max_reopenings: int
    """Most reopenings of a round with too few trajectories. Those of a search's iteration do not
    count if parts arrived since the last one.
    """
    own: OwnRollouts | None = None
    """The caller's own actors; None without any."""
    on_plan: Callable[[RoundPlan], object] = lambda _: None
    """Called with every plan."""

    def __post_init__(self) -> None:
        self._published: tuple[int, bytes] = (0, b"")
        """The last published version and policy."""
        self._asked: dict[int, tuple[RoundRequest, tuple[int, bytes]]] = {}
        """The open rounds' requests and policies."""
        self._begun_anew = self._lost_replays = 0

    def leave_if_must(self, where: str) -> None:
        """Raise `LeftEarly` if the lease was lost or this process was asked to end."""
        if self.lease.must_leave:
            raise LeftEarly(f"asked to leave {where}")

    def publish(self, version: int, policy: bytes) -> None:
        """Publish a policy for actors, again if needed, because keys expire.

        Raises:
            CacheUnreachableError: The cache has lost the policy of a round that is open, and so
                perhaps its results. To publish the policy would hide that.
        """
        shared = any(version == used for _, (used, _) in self._asked.values())
        if shared and self.job.spec.learns_in_order:
            self.cache.require_policy(self.job.job_id, version)
        self._published = version, policy
        self.cache.publish_policy(self.job.job_id, version, policy)

    def ask(self, index: int, request: RoundRequest) -> RoundPlan:
        """Request a round with a published policy; a repeat returns the same plan."""
        job, own = self.job, self.own
        self._asked[index] = request, self._published
        if own is not None:
            own.told(request.previous)
        if job.continues_episodes:
            # Before the plan: its actors start at once.
            most = job.spec.actors.max * job.spec.envs_per_actor
            self.cache.publish_starts(job.job_id, index, self.streams.starts(index)[:most])
        if job.spec.searches and not request.attempt:
            self.cache.open_queue(job.job_id, index)
        plan = self.scaler.open_round(job.job_id, index, self.with_offer(request))
        self.streams.take(index, plan.num_actors)
        if own is not None:
            again = (request.missing, request.missing_evaluations) if request.attempt else ()
            own.launch(plan, *again)
        self.on_plan(plan)
        return plan

    def with_offer(self, request: RoundRequest) -> RoundRequest:
        """Return a request with the capacity of own cores."""
        offer = None if self.own is None else self.own.offer()
        return request.model_copy(update={"own": offer})

    def open(self, plan: RoundPlan, before: OpenRound | None = None) -> OpenedRound:
        """Begin to collect a planned round, or continue after what an earlier learner used."""
        before = before or OpenRound(round=plan.round, policy_version=plan.policy_version)
        lease = self.lease
        return opened_round(
            self.cache,
            self.job,
            plan,
            before,
            should_leave=lambda: lease.should_leave,
            must_leave=lambda: lease.must_leave,
        )

    def collect(self, opened: OpenedRound) -> RoundPlan | None:
        """Wait until a round is usable, and reopen it for missing actors if necessary.

        Vanished actors have not failed: they are relaunched, so that a restart does not change the
        learned data.

        Returns:
            The plan that ends the job, if the round may not be reopened.

        Raises:
            RoundLostError: Too few trajectories arrived, or actors vanished repeatedly.
            LeftEarly: There is a reason to leave, and something is missing.
        """
        collector, left = opened.collector, self.max_reopenings
        collector.trajectories()
        while collector.vanished or ((left or collector.advanced) and self._wants_more(collector)):
            self._leave_if_asked(collector)
            if collector.doomed:
                raise environment_failed(collector)
            if not collector.vanished:
                left -= not collector.advanced
            elif not opened.may_relaunch():
                history = f"although what vanished was launched again {MOST_RELAUNCHES} times"
                raise round_lost(collector, spec=self.job.spec, history=history)
            again = self._reopen(collector, collector.missing, collector.failures)
            if again.stop is not None:
                _LOG.warning("round not reopened", extra=self._of(again, why=again.reason))
                return again
            collector.trajectories()
        if self._usable(collector):
            return None
        if collector.doomed or collector.all_blaming:
            raise environment_failed(collector)
        and_yet = ", and reopening it did not help" if self.max_reopenings else ""
        history = f"{collector.required} are needed{and_yet}"
        raise round_lost(collector, spec=self.job.spec, history=history)

    def evaluated(self, opened: OpenedRound) -> EvaluationResult | None:
        """Wait for a round's evaluation episodes; None without any.

        Raises:
            LeftEarly: There is a reason to leave before they are there.
        """
        collector, lease = opened.collector, self.lease
        collector.episodes()
        # The round continues without them, because they are not learned from.
        while (
            self.job.spec.learns_in_order
            and collector.vanished_episodes
            and not lease.must_leave
            and opened.may_relaunch()
        ):
            self._reopen(collector, (), ("evaluation episodes vanished",))
            collector.episodes()
        if lease.lost or (lease.interrupted and not collector.all_episodes_answered):
            raise LeftEarly("asked to leave before the round was done")
        return opened.evaluation()

    def keep(self, trajectories: Iterable[Trajectory]) -> None:
        """Keep the snapshots of used trajectories."""
        for trajectory in trajectories:
            self._begun_anew += trajectory.begun_anew
            self._lost_replays += trajectory.lost_replays
            if self.job.continues_episodes:
                self.streams.leave(trajectory.round, trajectory.actor_index, trajectory.snapshots)

    def result(
        self,
        opened: OpenedRound,
        counts: TrajectoryCounts,
        *,
        policy_version: int,
        evaluation: EvaluationResult | None,
        stats: Mapping[str, float],
        timing: RoundTiming,
        gradients: GradientRecord | None = None,
    ) -> RoundResult:
        """Return a closed round's result, and release its streams.

        Args:
            opened: The round.
            counts: Outcomes of its trajectories.
            policy_version: Current version of the policy.
            evaluation: Evaluation of the round's initial policy.
            stats: Of the updates since the last result.
            timing: Of the time since then.
            gradients: Outcomes of learner functions' gradients.
        """
        index, state = opened.plan.round, opened.state
        self._asked.pop(index, None)
        self.streams.release(index)
        begun_anew, self._begun_anew = self._begun_anew, 0
        lost_replays, self._lost_replays = self._lost_replays, 0
        return RoundResult(
            round=index,
            policy_version=policy_version,
            trajectories=counts,
            env_steps=state.env_steps,
            episode_returns=state.episode_returns,
            dropped_episodes=state.dropped_episodes,
            begun_anew=begun_anew,
            lost_replays=lost_replays,
            evaluation=evaluation,
            stats=dict(stats),
            gradients=gradients,
            own=None if self.own is None else self.own.work(index),
            timing=timing,
        )

    def window(self) -> RoundWindow:
        """Return a window for concurrently open rounds."""
        return RoundWindow(self.cache, self.job.job_id)

    def arrivals(
        self, window: RoundWindow, *, waits: Callable[[], bool]
    ) -> Iterator[tuple[Trajectory, ...]]:
        """Yield arrivals of all open rounds until the oldest is over; often there are none.

        Args:
            window: The open rounds.
            waits: Whether to wait if nothing has arrived.

        Raises:
            RoundLostError: The environment makes the round unusable.
            LeftEarly: There is a reason to leave.
        """
        oldest = window.oldest
        while not (oldest.over or self.lease.stop is not None):
            self.leave_if_must("while rounds were open")
            wait_s = min(oldest.collector.remaining_s, _LONGEST_WAIT_S) if waits() else 0.0
            yield window.arrivals(timeout_s=wait_s)
            if oldest.collector.doomed and self.lease.stop is None:
                raise environment_failed(oldest.collector)
        oldest.collector.look_again()

    def empty_rounds(self, closed: OpenedRound, *, before: int) -> int:
        """Return the number of consecutive rounds without trajectories, including this one.

        Raises:
            RoundLostError: There are too many, and no stop of the job was requested.
        """
        collector = closed.collector
        if collector.used:
            return 0
        # Rounds that were open at the first failure share its cause: only a later one counts.
        most = self.job.spec.open_rounds
        if before >= most and self.lease.stop is None:
            if collector.all_blaming:
                raise environment_failed(collector)
            history = f"nor did any in the {most} rounds before it"
            raise round_lost(collector, spec=self.job.spec, history=history)
        return before + 1

    def _reopen(
        self, collector: RoundCollector, missing: tuple[int, ...], why: tuple[str, ...]
    ) -> RoundPlan:
        """Relaunch these actors and vanished episodes."""
        index = collector.plan.round
        request, policy = self._asked.pop(index)
        episodes = collector.vanished_episodes
        _LOG.warning(
            "round reopened",
            extra=self._of(collector.plan, missing=len(missing), episodes=len(episodes), why=why),
        )
        collector.prepare_reopening(missing)
        # The policy may be missing: keys expire, even while the machine sleeps.
        self.publish(*policy)
        another = {
            "attempt": collector.attempt + 1,
            "missing": missing,
            "missing_evaluations": episodes,
        }
        again = self.ask(index, request.model_copy(update=another))
        collector.reopen(again, missing)
        return again

    def _usable(self, collector: RoundCollector) -> bool:
        self._leave_if_asked(collector)
        return collector.usable

    def _wants_more(self, collector: RoundCollector) -> bool:
        """Whether a round is to be reopened.

        A search's round is reopened whenever its actors are missing: without them the longest
        episodes, often the best, would be missing first.
        """
        usable = self._usable(collector)
        return bool(collector.missing) if self.job.spec.searches else not usable

    def _leave_if_asked(self, collector: RoundCollector) -> None:
        if collector.incomplete and self.lease.should_leave:
            if self.lease.stop is not None:
                collector.end()
            raise LeftEarly("asked to leave while a round was collected", stop=self.lease.stop)

    def _of(self, plan: RoundPlan, **more: object) -> dict[str, object]:
        return {"job": self.job.job_id, "round": plan.round, **more}
