"""Several open rounds at a time: fragments as they arrive, each with its policy's version.

    open rounds 0 .. m-1 ──▶ hand over whatever arrives ◀────────────────────────────┐
                                   │ the oldest round, k, is over                     │
                                   ▼                                                  │
                       publish the policy as version k + m, open round k + m ─────────┘

Each step is one of `JobRounds`, as in the learner's `OverlappingRounds`. A round's actors fetch the
policy that was published when it was opened.
"""

from collections.abc import Callable, Iterator

from nitro.pool.batch import Batch, batch_of
from nitro.pool.policy import Policy
from nitro.pool.round_calls import RoundCalls
from services.learner.rounds.round_clock import RoundClock
from shared.contracts.rounds import RoundResult
from shared.trajectory.trajectory import Trajectory


class OverlappingFragments:
    """A job's fragments, with `rounds_in_flight` rounds open; use it from one thread."""

    def __init__(self, calls: RoundCalls) -> None:
        self._calls = calls
        self._clock = RoundClock()
        self._window = calls.rounds.window()
        self._policies: dict[int, Policy] = {}
        """Policies of open rounds, by version."""
        self._previous: RoundResult | None = None
        self._empty_rounds = 0
        self.policy_version = -1
        """The newest published version."""

    @property
    def has_begun(self) -> bool:
        """Whether a round was opened."""
        return self.policy_version >= 0

    def fragments(
        self, policy: Callable[[], Policy], *, most_rounds: int | None
    ) -> Iterator[Batch]:
        """Yield fragments in order of arrival, until the job ends or all rounds are over.

        Args:
            policy: Returns the current policy; called for each new round.
            most_rounds: Most rounds to open; None leaves it to the job.

        Raises:
            PoolStopped: The lease was lost.
            RoundLostError: Several consecutive rounds got no trajectory.
        """
        calls, last = self._calls, most_rounds
        calls.require_open()
        opened = calls.spec.open_rounds if last is None else min(last, calls.spec.open_rounds)
        self._clock = RoundClock()
        with calls.while_held():
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
        """Publish the policy as a new version, and request a round with it."""
        calls, previous = self._calls, self._previous
        if previous is not None and previous.round != index - calls.spec.open_rounds:
            previous = None
        calls.rounds.publish(index, policy.encoded(calls.environment))
        self._policies[index] = policy
        plan = calls.ask(index, previous)
        self.policy_version = index
        self._window.add(calls.rounds.open(plan))
        self._clock.lap("plan_s")

    def _of_the_oldest(self) -> Iterator[Batch]:
        """Yield arrivals of all open rounds until the oldest is over."""
        oldest = self._window.oldest
        for arrived in self._calls.rounds.arrivals(self._window, waits=lambda: True):
            yield from self._handed_over(arrived)
        yield from self._handed_over(oldest.fresh())

    def _handed_over(self, trajectories: tuple[Trajectory, ...]) -> Iterator[Batch]:
        calls = self._calls
        self._clock.lap("collect_s")
        calls.rounds.keep(trajectories)
        launched = {each.plan.round: each.plan.num_actors for each in self._window}
        for trajectory in trajectories:
            yield batch_of(
                (trajectory,),
                calls.environment,
                policy=self._policies[trajectory.policy_version],
                num_launched=launched[trajectory.round],
                bill=calls.bills.of(trajectory.round),
            )
            self._clock.lap("update_s")

    def _close_oldest(self) -> int:
        """Close the oldest round and record its result; return its number."""
        closed, calls = self._window.close_oldest(), self._calls
        job_id, rounds, plan = calls.job.job_id, calls.rounds, closed.plan
        evaluation = closed.evaluation()
        calls.note(evaluation)
        self._clock.lap("collect_s")
        self._previous = rounds.result(
            closed,
            closed.collector.close(),
            policy_version=self.policy_version,
            evaluation=evaluation,
            stats=calls.report.stats,
            timing=self._clock.take(),
        )
        rounds.cache.free_round(job_id, plan.round)
        rounds.cache.delete_policy(job_id, plan.policy_version)
        del self._policies[plan.policy_version]
        self._empty_rounds = rounds.empty_rounds(closed, before=self._empty_rounds)
        return plan.round
