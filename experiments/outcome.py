"""The outcome of one cell, mostly one job, in the numbers that experiments read."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Self, TypeVar

import numpy as np
from pydantic import FiniteFloat

from benchmarks.environment import Environment
from experiments.grid import CellId
from shared.contracts.billing import JobCost, LedgerItem, LedgerLine, ServerfulCost
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import Job, StopReason
from shared.contracts.message import Count, Message, NonNegativeFloat
from shared.contracts.rounds import RoundRecord, RoundResult, RoundTiming


class RoundOutcome(Message):
    """One round."""

    num_actors: Count
    env_steps: Count
    score: FiniteFloat | None
    """Boosting score the number was made of; None for policies without one."""
    ratio: FiniteFloat | None
    """Convexity ratio of the policy the round was collected with."""
    cost_usd: NonNegativeFloat
    """Projected, as on AWS."""
    launch_s: NonNegativeFloat | None
    timing: RoundTiming
    """As measured here."""
    gradients: GradientRecord | None = None
    """Of functions; None where the learner computed them itself."""
    evaluated_steps: tuple[Count, ...] = ()
    """Of each episode that was evaluated beside it; empty in earlier runs."""


class Evaluation(Message):
    """Mean return of deterministic episodes, and what it had taken to get there."""

    updates: Count
    """Rounds its policy had learned from."""
    env_steps: Count
    cost_usd: NonNegativeFloat
    mean_return: FiniteFloat


BilledT = TypeVar("BilledT", RoundOutcome, Evaluation)


class Outcome(Message):
    """One cell."""

    environment: Environment
    """Where it was made."""


class JobOutcome(Outcome):
    """One job."""

    rounds: tuple[RoundOutcome, ...]
    evaluations: tuple[Evaluation, ...]
    """In order; the last is the final policy's."""
    stop_reason: StopReason | None
    total_usd: NonNegativeFloat
    by_item: dict[str, NonNegativeFloat]
    lambda_gb_s: NonNegativeFloat
    """Billed GB-seconds of all invocations."""
    lambda_requests: NonNegativeFloat
    projected_wall_s: NonNegativeFloat
    """On AWS."""
    serverful: tuple[ServerfulCost, ...]
    """The same rounds on servers: the paper's, and with the learner's machine billed here."""
    best_server: ServerfulCost | None = None
    """The same rounds on the one server on which they cost least; None in earlier runs."""
    assumptions: tuple[str, ...]
    """Of every projection above."""
    mean_warm: NonNegativeFloat | None = None
    """Environments of 1 GB its bill keeps warm, over time; None in earlier runs, which kept as many
    as their range has at most."""
    wall_s: NonNegativeFloat
    """Here."""

    @property
    def final_return(self) -> float:
        """Mean return of the final policy."""
        return self.evaluations[-1].mean_return

    @property
    def mean_actors(self) -> float:
        """Mean number of actors per round."""
        return fmean(r.num_actors for r in self.rounds)

    @property
    def env_steps(self) -> int:
        """Steps trained on."""
        return sum(r.env_steps for r in self.rounds)

    @property
    def servers_usd(self) -> float:
        """Cost of the same rounds on servers whose learner is the machine billed here.

        The paper's servers come first; their learner costs three times as much as ours, which says
        nothing of actors.
        """
        return self.serverful[-1].total_usd

    def keeping_warm(self, num: int, *, instead_of: float) -> Self:
        """Return this run billed with fewer environments kept warm.

        For a run that never launches more, with rounds that are alike: what it spends otherwise is
        the same, and it has spent the same part of the whole at any time.

        Args:
            num: As many as are left.
            instead_of: As many as there were.
        """
        warm_usd = self.by_item.get("provisioned_concurrency", 0.0)
        saved_usd = warm_usd * (1.0 - num / instead_of)
        part = 1.0 - saved_usd / self.total_usd

        def cheaper(each: BilledT) -> BilledT:
            return each.model_copy(update={"cost_usd": part * each.cost_usd})

        return self.model_copy(
            update={
                "total_usd": self.total_usd - saved_usd,
                "by_item": self.by_item | {"provisioned_concurrency": warm_usd - saved_usd},
                "rounds": tuple(cheaper(each) for each in self.rounds),
                "evaluations": tuple(cheaper(each) for each in self.evaluations),
            }
        )

    def return_at_usd(self, usd: float) -> float:
        """Return the mean return after so much money, on straight lines between evaluations."""
        spent = [e.cost_usd for e in self.evaluations]
        return float(np.interp(usd, spent, [e.mean_return for e in self.evaluations]))

    def return_at_seconds(self, seconds: float) -> float:
        """Return the mean return after so long on AWS, whose time rounds share as they did here."""
        ends = [0.0, *accumulate(r.timing.total_s for r in self.rounds)]
        scale = self.projected_wall_s / ends[-1]
        passed = [scale * ends[e.updates] for e in self.evaluations]
        return float(np.interp(seconds, passed, [e.mean_return for e in self.evaluations]))

    def return_at_steps(self, steps: float) -> float:
        """Return the mean return after so many environment steps, likewise."""
        taken = [e.env_steps for e in self.evaluations]
        return float(np.interp(steps, taken, [e.mean_return for e in self.evaluations]))

    def return_after(self, updates: float) -> float:
        """Return the mean return after so many rounds, on straight lines between evaluations."""
        rounds = [e.updates for e in self.evaluations]
        return float(np.interp(updates, rounds, [e.mean_return for e in self.evaluations]))


Outcomes = Mapping[CellId, JobOutcome]


def job_outcome(
    job: Job,
    records: Sequence[RoundRecord],
    cost: JobCost,
    lines: Sequence[LedgerLine],
    *,
    wall_s: float,
    machine: Environment,
) -> JobOutcome:
    """Sum up a finished job.

    Args:
        job: As it ended.
        records: All its rounds, in order.
        cost: Its final bill.
        lines: All lines of it.
        wall_s: How long it took here.
        machine: Where that was.
    """
    rounds: list[RoundOutcome] = []
    evaluations: list[Evaluation] = []
    steps, usd = [0], [0.0]  # after so many rounds
    for record in records:
        result = record.result
        if result is None:
            continue
        if result.evaluation is not None and result.evaluation.returns:
            ended = job.spec.rounds_behind(record.plan.round)
            mean = fmean(result.evaluation.returns)
            evaluations.append(_evaluation(ended, steps[ended], usd[ended], mean))
        rounds.append(_round(record, result))
        steps.append(steps[-1] + result.env_steps)
        usd.append(usd[-1] + record.cost_usd)
    # A job that its user stops may end without an evaluation of its last policy.
    looked = job.spec.evaluation.every_rounds and job.stop_reason != "user"
    if looked and job.progress.last_return is not None:
        final = _evaluation(len(rounds), steps[-1], cost.settled_usd, job.progress.last_return)
        evaluations.append(final)
    return JobOutcome(
        rounds=tuple(rounds),
        evaluations=tuple(evaluations),
        stop_reason=job.stop_reason,
        total_usd=cost.settled_usd,
        by_item=cost.by_item,
        lambda_gb_s=_quantity(lines, "lambda_duration"),
        lambda_requests=_quantity(lines, "lambda_requests"),
        projected_wall_s=cost.projected_wall_s,
        serverful=cost.serverful,
        best_server=cost.best_server,
        assumptions=cost.assumptions,
        mean_warm=_mean_warm(lines),
        wall_s=wall_s,
        environment=machine,
    )


def _evaluation(updates: int, env_steps: int, cost_usd: float, mean_return: float) -> Evaluation:
    return Evaluation(
        updates=updates, env_steps=env_steps, cost_usd=cost_usd, mean_return=mean_return
    )


def _round(record: RoundRecord, result: RoundResult) -> RoundOutcome:
    evaluated = result.evaluation
    return RoundOutcome(
        num_actors=record.plan.num_actors,
        env_steps=result.env_steps,
        score=record.plan.boosting_score,
        ratio=record.plan.ratio,
        cost_usd=record.cost_usd,
        launch_s=None if record.launches is None else record.launches.launch_s,
        timing=result.timing,
        gradients=result.gradients,
        evaluated_steps=evaluated.lengths if evaluated is not None else (),
    )


def _mean_warm(lines: Sequence[LedgerLine]) -> float | None:
    held_s = _quantity(lines, "learner")
    return _quantity(lines, "provisioned_concurrency") / held_s if held_s else None


def _quantity(lines: Sequence[LedgerLine], item: LedgerItem) -> float:
    return sum(line.quantity for line in lines if line.item == item)
