"""The hard cap on spending: the next round is priced at its worst case before launch.

    committed     spent, and set aside for rounds whose bill is not final, or owed by them if more
  + this round    every invocation runs to the time-out twice, the learner waits to the deadline
  + closing       the job's end: the final evaluation, if it wants one, and the learner's last work
  <= budget_usd

Because every round reserves the closing, a job that runs out of money still ends in order, with its
final evaluation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from services.scaler.money.account import warm_at_most
from services.scaler.money.gradient_pricing import worst_update_usd
from services.scaler.money.kept_warm import least_warm, most_warm
from shared.contracts.job_spec import JobSpec
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.learner_task import DEPLOYMENTS_TASK, LearnerTask
from shared.money.costs import CostBasis, deadline_s, worst_case_round_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPricing:
    """The pricing of invocations at their worst case."""

    basis: CostBasis
    deadline_slack_s: float
    learner_allowance_s: float

    def after(self, longest_learner_s: float) -> Self:
        """Return the pricing of a job whose learner took this long for its part of a round.

        The next one may take twice as long.
        """
        allowance_s = max(self.learner_allowance_s, 2.0 * longest_learner_s)
        return replace(self, learner_allowance_s=allowance_s)

    def with_learner(self, kind: LearnerKind, task: LearnerTask = DEPLOYMENTS_TASK) -> Self:
        """Return the pricing of a job with this learner and task."""
        return replace(self, basis=self.basis.with_learner(kind, task))

    def with_warm(self, num_environments: int, *, pinged: int) -> Self:
        """Return the pricing of a job with at most this many warm environments, others pinged."""
        return replace(self, basis=warm_at_most(self.basis, num_environments, pinged=pinged))

    def deadline_s(self, num_invocations: int) -> float:
        """Return the deadline of a round with that many invocations."""
        return deadline_s(
            num_invocations,
            function_timeout_s=self.basis.function_timeout_s,
            slack_s=self.deadline_slack_s,
        )

    def worst_case_usd(self, num_invocations: int, *, own: int = 0) -> float:
        """Return the worst case of a round; without actors there is no wait for a deadline.

        Own actors cost only that wait.
        """
        waits = num_invocations + own > 0
        return worst_case_round_usd(
            num_invocations,
            waiting_s=self.deadline_s(num_invocations + own) if waits else 0.0,
            learner_s=self.learner_allowance_s,
            basis=self.basis,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Affordable:
    """The affordable part of a round; no actors if even the smallest is too expensive."""

    num_actors: int = 0
    num_evaluations: int = 0
    reserve_usd: float = 0.0
    note: str = ""
    """The cuts and their reason; empty for none."""


def closing_usd(spec: JobSpec, pricing: RoundPricing) -> float:
    """Return the amount that every round reserves for the end of the job."""
    return pricing.worst_case_usd(final_evaluations(spec))


def final_evaluations(spec: JobSpec) -> int:
    """Return the number of episodes in the evaluation after the last update."""
    return spec.evaluation.episodes if spec.evaluation.every_rounds else 0


def least_pricing(spec: JobSpec, learner: LearnerKind, pricing: RoundPricing) -> RoundPricing:
    """Return the pricing of a job with the fewest warm environments that its budget may force."""
    priced = pricing.with_learner(learner, spec.learner_task)
    return priced.with_warm(least_warm(spec), pinged=_pinged(spec))


def most_pricing(
    spec: JobSpec, learners: Iterable[LearnerKind], pricing: RoundPricing
) -> RoundPricing:
    """Return the pricing of a job with the most expensive learner and all its warm environments."""
    priced = [pricing.with_learner(learner, spec.learner_task) for learner in learners]
    dearest = max(priced, key=lambda each: each.basis.learner_usd_per_s)
    return dearest.with_warm(most_warm(spec), pinged=_pinged(spec))


def _pinged(spec: JobSpec) -> int:
    """Return the most environments of a job that are pinged."""
    return spec.actors.max if spec.warm in ("reuse", "auto") else 0


def smallest_budget_usd(spec: JobSpec, pricing: RoundPricing) -> float:
    """Return the least budget with which a job can train for one round."""
    update_usd = worst_update_usd(spec, pricing.basis)
    return pricing.worst_case_usd(spec.actors.min) + update_usd + closing_usd(spec, pricing)


def affordable_round(
    spec: JobSpec,
    pricing: RoundPricing,
    *,
    num_actors: int,
    num_evaluations: int,
    committed_usd: float,
    own: int = 0,
    own_evaluations: int = 0,
) -> Affordable:
    """Return the largest affordable round, between the job's fewest actors and `num_actors`.

    `own` of the actors, and `own_evaluations`, run on the learner's own cores, in its time.

    Evaluation episodes are dropped before the fewest actors. That number is `num_actors` if the
    account's concurrency allows less than the job's fewest.
    """
    fewest = max(0, min(spec.actors.min, num_actors) - own)
    room_usd = spec.stop.budget_usd - committed_usd - closing_usd(spec, pricing)
    # Reserved when its functions are launched; until then nothing else may use it.
    room_usd -= worst_update_usd(spec, pricing.basis)
    for episodes in dict.fromkeys((num_evaluations - own_evaluations, 0)):
        here = own + own_evaluations
        functions = _most_functions(fewest, num_actors - own, episodes, here, room_usd, pricing)
        if functions is not None:
            actors, evaluations = own + functions, own_evaluations + episodes
            return Affordable(
                num_actors=actors,
                num_evaluations=evaluations,
                reserve_usd=pricing.worst_case_usd(functions + episodes, own=here),
                note=_note(num_actors, actors, num_evaluations, evaluations, room_usd),
            )
    least_usd = pricing.worst_case_usd(fewest, own=own)
    left = f"${max(0.0, room_usd):.4f} are left"
    return Affordable(note=f"budget: {fewest + own} actors may cost ${least_usd:.4f}, {left}")


def affordable_closing(
    spec: JobSpec, pricing: RoundPricing, *, committed_usd: float, own: bool = False
) -> Affordable:
    """Return the final evaluation, or none if the budget does not cover it.

    `own` says that it runs on the learner's own cores.
    """
    room_usd = spec.stop.budget_usd - committed_usd
    whole_usd, least_usd = closing_usd(spec, pricing), pricing.worst_case_usd(0)
    if own:
        whole_usd = pricing.worst_case_usd(0, own=final_evaluations(spec))
    if whole_usd <= room_usd:
        return Affordable(num_evaluations=final_evaluations(spec), reserve_usd=whole_usd)
    return Affordable(
        reserve_usd=least_usd if least_usd <= room_usd else 0.0,
        note="budget: final evaluation left out",
    )


def _most_functions(
    fewest: int, most: int, episodes: int, own: int, room_usd: float, pricing: RoundPricing
) -> int | None:
    """Return the largest affordable number in [fewest, most]; None without one."""
    low, high = fewest - 1, most
    while low < high:  # the price grows with the number of actors
        middle = (low + high + 1) // 2
        if pricing.worst_case_usd(middle + episodes, own=own) <= room_usd:
            low = middle
        else:
            high = middle - 1
    return low if low >= fewest else None


def _note(
    num_actors: int, actors: int, num_evaluations: int, episodes: int, room_usd: float
) -> str:
    cuts = []
    if actors < num_actors:
        cuts.append(f"{num_actors} actors cut to {actors}")
    if episodes < num_evaluations:
        cuts.append("evaluation left out")
    return f"budget: {', '.join(cuts)}, ${room_usd:.4f} are left" if cuts else ""
