"""Actors drawn by a trained agent: MinionsRL's scheduler, one of the paper's baselines.

State, network and draw are in `shared.contracts.minions_agent`. This file builds the state from a
round's measurements.

The draw depends on the job's seed, but the state contains measured times: equal seeds give equal
decisions only for equal times.

| case | outcome |
|---|---|
| before the first round's result | zeros for loss, return, KL and times |
| no evaluation yet | 0 for the return |
| the choice is outside the job's range | the nearest number in the range |
"""

from services.scaler.scaling.base import PastRound, ScalingDecision, ScalingInput, ScalingPolicy
from shared.contracts.minions_agent import SchedulerState, choice_probabilities, drawn_count
from shared.contracts.scaling_spec import ActorRange, MinionsScaling
from shared.trajectory.seeds import round_uniform


class MinionsPolicy(ScalingPolicy[MinionsScaling]):
    """A draw from the agent's distribution over counts."""

    def decide(self, seen: ScalingInput) -> ScalingDecision:
        """Draw a number of actors."""
        probabilities = choice_probabilities(self.parameters.agent, scheduler_state(seen))
        uniform = round_uniform(seen.seed, purpose="minionsrl", round_index=seen.round_index)
        drawn = drawn_count(probabilities, uniform)
        requested = seen.actors.clip(drawn)
        chance = probabilities[drawn - 1]
        clipped = "" if requested == drawn else f", {drawn} drawn"
        return ScalingDecision(
            requested=requested,
            reason=f"minionsrl: {requested} actors{clipped} with probability {chance:.3f}",
        )

    def most_from(self, round_index: int, actors: ActorRange) -> int:
        """Return the agent's largest choice."""
        return actors.clip(self.parameters.agent.num_choices)

    @property
    def num_rounds(self) -> int:
        """One: the previous round."""
        return 1


def scheduler_state(seen: ScalingInput) -> SchedulerState:
    """Return a round's state for the agent."""
    unknown = PastRound(round_index=-1, requested=0, num_actors=0)
    last = seen.past[-1] if seen.past else unknown
    return SchedulerState(
        round_index=float(seen.round_index),
        learner_loss=last.loss or 0.0,
        mean_return=seen.evaluation_return or 0.0,
        kl=last.kl or 0.0,
        learner_s=last.learner_s or 0.0,
        actor_s=last.actor_s or 0.0,
        remaining_usd=seen.remaining_usd,
    )
