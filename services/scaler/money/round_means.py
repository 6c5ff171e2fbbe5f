"""Average cost of a job's rounds: a fixed part, and a part for each actor.

An actor adds its execution, or its share of the learner's own cores. It also adds the learner's
update of its fragment, with all items that are billed by the second. The rest of a round's bill is
fixed. So, for every round,

    bill = fixed_usd + num_actors * actor_usd.

Evaluation episodes are fixed; one is assumed to cost as much as an actor's execution.
"""

from services.scaler.book.attempts import OpenAttempt
from services.scaler.money.ledger import Settlement
from services.scaler.scaling.base import RoundCosts

_LEAST_WEIGHT = 0.1
"""Least weight of the newest round: first the mean is over all rounds, later over some ten."""
_EXECUTION_ITEMS = frozenset({"lambda_duration", "lambda_requests"})


def with_round(
    costs: RoundCosts | None, attempt: OpenAttempt, bill: Settlement
) -> RoundCosts | None:
    """Return the means with one more round.

    Rounds that were launched again, or not learned from, or overlapped others, do not count.
    """
    num_functions = attempt.num_invocations - attempt.num_evaluations
    num_actors = num_functions + attempt.num_own
    if attempt.attempt or attempt.open_rounds > 1 or not (num_actors and attempt.update_s):
        return costs
    update_s = min(attempt.update_s, bill.billed_s)
    executions_usd = sum(line.amount_usd for line in bill.lines if line.item in _EXECUTION_ITEMS)
    held_usd = bill.amount_usd - executions_usd
    update_usd = held_usd * update_s / bill.billed_s if bill.billed_s else 0.0
    functions_usd = executions_usd * num_functions / max(1, attempt.num_invocations)
    own_s = min(attempt.own_s, bill.billed_s - update_s) if attempt.num_own else 0.0
    own_usd = held_usd * own_s / bill.billed_s if bill.billed_s else 0.0
    actor_usd = (functions_usd + update_usd + own_usd) / num_actors
    this = {
        "fixed_usd": max(0.0, bill.amount_usd - num_actors * actor_usd),
        "fixed_s": bill.billed_s - update_s - own_s,
        "actor_usd": actor_usd,
        "actor_s": (update_s + own_s) / num_actors,
    }
    if costs is None:
        return RoundCosts(num_rounds=1, **this)
    count = costs.num_rounds + 1
    weight = max(1 / count, _LEAST_WEIGHT)
    means = {
        name: (1 - weight) * getattr(costs, name) + weight * value for name, value in this.items()
    }
    return RoundCosts(num_rounds=count, **means)
