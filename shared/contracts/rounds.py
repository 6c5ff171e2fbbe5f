"""Messages between Nitro's parts, all JSON.

A user posts a `JobSpec`. A learner takes a `Lease` on the job. Before every round it sends a
`RoundRequest` and gets a `RoundPlan`. The scaler sends each actor a `RolloutTask` and gets an
`ActorReport`. Messages contain no arrays, which go through the trajectory cache.
"""

from statistics import fmean
from typing import Annotated

from pydantic import Field

from shared.contracts.billing import LedgerLine
from shared.contracts.gradients import GradientRecord
from shared.contracts.jobs import StopReason
from shared.contracts.message import (
    Count,
    Identifier,
    JobId,
    Message,
    NonNegativeFloat,
    Number,
    PositiveInt,
)


class GradientNoise(Message):
    """Unbiased estimates from the gradients of a small and a big batch at one policy.

    McCandlish et al., arXiv 1812.06162, appendix A.1. Either can be negative. They are averaged
    separately over rounds, then divided: the ratio is the gradient noise scale.
    """

    squared_norm: Number
    """|G|^2 of the true gradient."""
    variance: Number
    """S = tr(Sigma) of one sample's gradient, or of one fragment's if fragments are compared."""


FEWEST_FRAGMENTS = 4
"""The fewest fragments to compare gradients of: with fewer, the variance is too uncertain."""


class Curvature(Message):
    """Extreme eigenvalues of the Hessian of the policy surrogate objective (section 5.1).

    Or of the objective in the job's `detector`; always of a function to be maximised.
    """

    lambda_max: Number
    lambda_min: Number
    residual: NonNegativeFloat
    """Mean of the two Ritz residuals, each relative to its eigenvalue or to a tenth of the spectral
    radius, whichever is larger.
    """
    matvecs: Count
    num_samples: PositiveInt
    gradient_noise: GradientNoise | None = None
    """Of the surrogate at the same policy, from up to 16 trajectories, 32 steps spread over each;
    None when it has no meaning."""
    fragment_noise: GradientNoise | None = None
    """Of the surrogate at the policy before the update, which made the samples, from up to 16 whole
    fragments, in the norm of Adam's steps; None with fewer than 4, before the first update, where
    actors share a round's samples, and off-policy."""
    elapsed_s: NonNegativeFloat


class TrajectoryCounts(Message):
    """Outcomes of a round's trajectories; `launched` is their sum without `duplicate`."""

    launched: Count
    used: Count
    late: Count
    """Arrived after the round was closed: discarded."""
    duplicate: Count
    """Second deliveries: discarded."""
    lost: Count
    """Never arrived while the round was open, or arrived damaged."""


class EvaluationResult(Message):
    """Deterministic episodes of one policy version."""

    policy_version: Count
    returns: tuple[Number, ...]
    lengths: tuple[PositiveInt, ...]

    @property
    def mean_return(self) -> float | None:
        """Mean of the returns; None without episodes."""
        return fmean(self.returns) if self.returns else None


_Seconds = Annotated[NonNegativeFloat, Field(le=1e9)]
"""Thirty years: no real measurement is longer."""


class RoundTiming(Message):
    """Where a round's wall time went, in seconds."""

    plan_s: _Seconds
    """Publishing the policy and asking for the round."""
    collect_s: _Seconds
    """Waiting for actors; with overlapping rounds, including the replays meanwhile."""
    update_s: _Seconds
    curvature_s: _Seconds
    evaluate_s: _Seconds
    """Waiting for evaluation episodes after the update; most of them run during it."""
    checkpoint_s: _Seconds
    """Writing record and checkpoint of the previous round; this round's follow later."""
    total_s: _Seconds

    @property
    def learner_s(self) -> float:
        """Seconds of the learner's own work."""
        return self.update_s + self.curvature_s + self.checkpoint_s


class OwnActors(Message):
    """The learner's capacity for actors on its own cores, as measured in the job."""

    num: PositiveInt
    """Actor processes, one per core."""
    step_s: NonNegativeFloat | None = None
    """Seconds of a step in a process; None before the first rollout."""
    call_s: NonNegativeFloat = 0.0
    """Overhead of a rollout."""

    def rollout_s(self, steps: int) -> float | None:
        """Return the seconds of a rollout with this many steps."""
        return None if self.step_s is None else self.call_s + steps * self.step_s


class OwnWork(Message):
    """Outcomes of a round's tasks on the learner's own cores."""

    rollouts: Count
    episodes: Count
    lost: Count = 0
    """Attempts that ended without a result: killed, hung or failed."""
    busy_s: NonNegativeFloat
    """Seconds of all tasks together."""
    elapsed_s: NonNegativeFloat
    """From the plan to the end of the last rollout."""


class RoundResult(Message):
    """The learner's result of a round."""

    round: Count
    policy_version: Count
    """Version after the update, or after the last update before the end of the round."""
    trajectories: TrajectoryCounts
    env_steps: Count
    """Steps used of this round."""
    episode_returns: tuple[Number, ...]
    """Training episodes that ended inside the round's trajectories."""
    dropped_episodes: Count = 0
    """Training episodes that actors sampled again because of a non-finite number."""
    begun_anew: Count = 0
    """Episodes that started over because they could not be continued."""
    lost_replays: Count = 0
    """Of these, episodes whose repeated actions gave another episode."""
    evaluation: EvaluationResult | None
    stats: dict[Identifier, Number]
    """Scalars of the update: losses, KL, entropy, clip fraction. With overlapping rounds, over all
    updates since the end of the previous round: the number of `updates` and `replays`, the largest
    `policy_lag_max`, and means of the rest.
    """
    gradients: GradientRecord | None = None
    """Outcomes of learner functions' gradients; None if the learner computes them itself."""
    own: OwnWork | None = None
    """Tasks on the learner's own cores; None without any."""
    timing: RoundTiming


class RoundRequest(Message):
    """The learner's one call per policy update."""

    lease_id: Identifier
    policy_version: Count
    attempt: Count = 0
    """0 at first; 1 reopens a round with too few trajectories."""
    missing: tuple[Count, ...] | None = None
    """Actor indices to relaunch when `attempt` > 0; None means all. Empty if only evaluation
    episodes are missing.
    """
    missing_evaluations: tuple[Count, ...] = ()
    """Vanished evaluation episodes to relaunch when `attempt` > 0."""
    curvature: Curvature | None = None
    """Measured at the policy of `policy_version`; None if it failed."""
    gradient_noise: GradientNoise | None = None
    """Measured at the same policy as the curvature; None if it failed."""
    num_actors: PositiveInt | None = None
    """Number of actors that overrides the scaling policy, within the job's range. For `external`
    jobs only; budget and concurrency may still reduce it.
    """
    own: OwnActors | None = None
    """The learner's own cores; None without own actors."""
    ends: StopReason | None = None
    """Ends the job with this plan, for this reason, after its final evaluation. For `external` jobs
    only.
    """
    previous: RoundResult | None = None
    """Result of the round that ends with this request: the previous round, or with m open rounds
    the m-th previous. The first m requests of a job have none.
    """


class RoundPlan(Message):
    """The scaler's answer: the launched round, or the reason to stop."""

    job_id: JobId
    round: Count
    attempt: Count
    policy_version: Count
    num_actors: Count
    """Actors launched (granted); 0 when `stop` is set."""
    num_evaluations: Count
    """Evaluation episodes launched in addition; with `stop`, the final evaluation."""
    own: Count = 0
    """Number of own actors, with the lowest indices; the others are functions."""
    own_evaluations: Count = 0
    """Number of evaluation episodes on own cores, with the lowest indices."""
    requested: Count
    """Actors the scaling policy asked for, before budget and concurrency."""
    boosting_score: Annotated[Number, Field(ge=0, le=1)] | None
    ratio: Number | None
    """Convexity ratio R (equation 2)."""
    reason: str
    """Why this number: score, budget, quota."""
    fragment_noise: bool = False
    """Whether the current policy needs the noise of fragments, so that the learner measures it."""
    deadline_s: NonNegativeFloat
    """How long the learner waits at most, from the first request."""
    timeout_s: NonNegativeFloat = 0.0
    """How long a function may run by the round's prices; 0 in plans of earlier versions."""
    age_s: NonNegativeFloat = 0.0
    """Age of this plan: above 0 in the answer to a repeated request."""
    quorum: Count
    """Fewest trajectories for the round to count; overlapping rounds always count."""
    stop: StopReason | None
    spent_usd: NonNegativeFloat
    settled: tuple[LedgerLine, ...]
    """New lines of the ledger."""
    settled_from: Count = 0
    """Index of the first new line in the ledger."""
    settled_rounds: Count = 0
    """Number of rounds, from the first, with a final bill, unless they are repeated."""

    @property
    def function_actors(self) -> range:
        """Indices of the actors that are functions."""
        return range(self.own, self.num_actors)

    @property
    def function_evaluations(self) -> range:
        """Indices of the evaluation episodes that functions play."""
        return range(self.own_evaluations, self.num_evaluations)

    def lines_behind(self, known: int) -> tuple[LedgerLine, ...]:
        """Return the settled lines after the first n lines of the ledger.

        The answer to a repeated request repeats its lines.
        """
        return self.settled[max(0, known - self.settled_from) :]


class LaunchCounts(Message):
    """Outcomes of a round's invocations, including evaluation episodes."""

    requested: Count
    """Tasks to launch."""
    succeeded: Count
    failed: Count
    """Abandoned tasks, reported to the learner if possible."""
    reissued: Count
    """Second executions after a failed first one."""
    throttled: Count
    """Responses with status 429, each followed by a pause and a retry if any is left."""
    unreached: Count = 0
    """Failed connections: nothing started, and each was retried."""
    latest_failure: str = ""
    """Why the latest execution or connection failed; empty for none."""
    unknown: Count = 0
    """In flight or about to launch when the scaler stopped: billed at their worst case."""
    cold_starts: Count = 0
    """Successful invocations that had to start an environment first."""
    vanished: Count = 0
    """Failed invocations without their own fault: a part of the system went away."""
    launch_s: NonNegativeFloat | None = None
    """From the decision to the last task's request; None if none was sent, or if unknown."""
    step_s: NonNegativeFloat | None = None
    """Mean seconds of an environment step in its rollouts; None without any."""
    call_overhead_s: NonNegativeFloat | None = None
    """Smallest overhead of an invocation: request, policy, trajectory, answer. The smallest,
    because an invocation may queue behind another; None without rollouts.
    """


class ActorTrouble(Message):
    """Failures of a round's actors so far, in all attempts, including evaluations."""

    lost: Count = 0
    """Given up."""
    retried: Count = 0
    """Retries of failed executions and connections."""
    latest: str = ""
    """Why the latest one failed; empty for none."""


class RoundRecord(Message):
    """The scaler's record of a round."""

    plan: RoundPlan
    result: RoundResult | None
    cost_usd: NonNegativeFloat
    """Money billed so far."""
    reserved_usd: NonNegativeFloat = 0.0
    """Money reserved, at the worst case, for unbilled launches."""
    launches: LaunchCounts | None = None
    """Launches of the newest attempt; None while invocations are in flight."""
    trouble: ActorTrouble = ActorTrouble()
    """Current even while invocations are in flight."""


class RoundPage(Message):
    """Rounds in order."""

    rounds: tuple[RoundRecord, ...]
    endings: tuple[RoundRecord, ...] = ()
    """After the last rounds come plans that ended the job; they sampled nothing and are not rounds.
    """
    next_cursor: str | None


class RoundLine(Message):
    """One line of `rounds.jsonl`, the record of a run and the source of every plot."""

    plan: RoundPlan
    result: RoundResult | None
    """None in plans that end the job, one for each open round; the last of them has the final
    evaluation.
    """
    curvature: Curvature | None
    """Of the policy after the update."""
    evaluation: EvaluationResult | None
    """Of the policy before the update, the one the round was collected with."""
