"""A round from `ActorPool.rounds`: the decision, before its actors are launched."""

from nitro.pool.round_calls import Bills
from shared.contracts.rounds import RoundPlan


class Round:
    """A round that `ActorPool.rounds` yields, before its actors are launched.

    Attributes:
        number: From 0.
        actors: Number of actors by the scaling policy, within budget and concurrency.
        reason: Reason for the number, in words.
        boosting_score: The policy's score in [0, 1]; None without one.
        spent_usd: The job's bill before the round.
    """

    def __init__(self, plan: RoundPlan, bills: Bills) -> None:
        self.number = plan.round
        self.actors = plan.num_actors
        self.reason = plan.reason
        self.boosting_score = plan.boosting_score
        self.spent_usd = plan.spent_usd
        self._bill = bills.of(plan.round)

    def __repr__(self) -> str:
        return f"<Round {self.number}: {self.actors} actors, {self.reason}>"

    @property
    def cost_usd(self) -> float | None:
        """The round's bill in dollars; None until it is final, with a later round's plan."""
        return self._bill()
