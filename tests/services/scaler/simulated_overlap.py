"""Whole jobs whose rounds overlap, on the simulated clock, as `OverlappingRounds` asks for them."""

from collections import deque
from dataclasses import dataclass

from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundPlan, RoundRequest, RoundResult
from tests.services.scaler.running import curvature
from tests.services.scaler.simulated_job import SimulatedScaler, Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """A round under way, as its learner knows it."""

    plan: RoundPlan
    over_at: float
    """When the last of its actors is heard of, or the learner waits no longer."""


class OverlappingScaler(SimulatedScaler):
    """The scaler without network, and a learner that keeps several rounds open."""

    def random_spec(self, scaling: dict[str, object]) -> JobSpec:
        """A job with money for one round, or for several."""
        spec = super().random_spec(scaling)
        changes = {
            "algorithm": self.chance.choice(("impact", "impala")),
            "rounds_in_flight": self.chance.choice((2, 2, 3, 4, 8)),
        }
        return self._with_money(spec.model_copy(update=changes), most=9.0)

    def run(self, spec: JobSpec) -> Stopped:
        """Train a job to its end."""
        lease_id = self._begin(spec)
        stopped: Stopped | None = None
        rounds: deque[OpenRound] = deque()
        previous: RoundResult | None = None
        for index in range(1000):
            rounds.append(self._open(index, lease_id, previous))
            newest = rounds[-1].plan
            if newest.stop is not None and stopped is None:
                stopped = self._stopped(newest)
            if len(rounds) < spec.open_rounds:
                continue
            if self.chance.random() < 0.1:
                lease_id, rounds = self._taken_over(lease_id, rounds)
            oldest = rounds.popleft()
            if oldest.plan.stop is not None:
                assert stopped is not None
                assert newest.stop is not None
                self.now = max(self.now, rounds[-1].over_at)
                self._end(lease_id, newest.stop)
                return stopped
            self.now = max(self.now, oldest.over_at)
            previous = self._result(oldest.plan.round)
        raise AssertionError("a job without end")

    def _open(self, index: int, lease_id: str, previous: RoundResult | None) -> OpenRound:
        self.now += self.chance.uniform(0, 1)  # a policy is published
        if self.chance.random() < 0.8:
            self.invoker.hear(until=self.now)
        request = RoundRequest(
            lease_id=lease_id,
            policy_version=index,
            previous=previous,
            curvature=None if previous is None else curvature(self.chance.uniform(0.1, 3.0), -1.0),
        )
        plan, launched = self.planned(index, request)
        waited_s = 0.0
        if launched:
            late = self.cruel or self.chance.random() < 0.1
            waited_s = plan.deadline_s if late else min(plan.deadline_s, self.invoker.longest_s)
        return OpenRound(plan=plan, over_at=self.now + waited_s)

    def _taken_over(self, lease_id: str, rounds: deque[OpenRound]) -> tuple[str, deque[OpenRound]]:
        """A learner that took over asks for all open rounds again: it gets the same plans."""
        lease_id = self._next_learner(lease_id)
        again = deque(self._open(each.plan.round, lease_id, None) for each in rounds)
        assert [o.plan.num_actors for o in again] == [o.plan.num_actors for o in rounds]
        return lease_id, again
