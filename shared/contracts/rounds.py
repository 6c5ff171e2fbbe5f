"""Messages between Nitro's parts, all JSON.

The story they tell: a user posts a `JobSpec`; a learner takes a `Lease` on the job; before every
round it sends a `RoundRequest` and gets a `RoundPlan`; the scaler sends each actor a `RolloutTask`
and gets an `ActorReport`. Arrays never travel in here: they go through the trajectory cache.
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
    apart over rounds, and only then divided: the ratio is the gradient noise scale.
    """

    squared_norm: Number
    """|G|^2 of the true gradient."""
    variance: Number
    """S = tr(Sigma) of one sample's gradient, or of one fragment's where fragments are compared."""


FEWEST_FRAGMENTS = 4
"""Fragments whose gradients are compared at least: of fewer, the variance says too little."""


class Curvature(Message):
    """Extreme eigenvalues of the Hessian of the policy surrogate objective (section 5.1).

    Or of the objective the job's `detector` names; always of a function to be maximised.
    """

    lambda_max: Number
    lambda_min: Number
    residual: NonNegativeFloat
    """Mean of the two Ritz residuals, each relative to its eigenvalue, or to a tenth of the
    spectral radius where that is more."""
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
    """Where the trajectories of a round went; `launched` is their sum without `duplicate`."""

    launched: Count
    used: Count
    late: Count
    """Arrived after the round was closed: discarded."""
    duplicate: Count
    """Delivered again after the first had been stored: discarded."""
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
"""Thirty years: a longer one was not measured, and no clock could be set by it."""


class RoundTiming(Message):
    """Where a round's wall time went, in seconds."""

    plan_s: _Seconds
    """Publishing the policy and asking for the round."""
    collect_s: _Seconds
    """Waiting for actors; where rounds overlap, with the replays made meanwhile."""
    update_s: _Seconds
    curvature_s: _Seconds
    evaluate_s: _Seconds
    """Waiting for evaluation episodes after the update; most of them ran during it."""
    checkpoint_s: _Seconds
    """Writing record and checkpoint of the round before: this one's are written after this."""
    total_s: _Seconds

    @property
    def learner_s(self) -> float:
        """Seconds of the learner's own work."""
        return self.update_s + self.curvature_s + self.checkpoint_s


class OwnActors(Message):
    """What a learner can do of a round on its own cores, as it measured in the job."""

    num: PositiveInt
    """Actor processes, each with a core of its own."""
    step_s: NonNegativeFloat | None = None
    """Seconds of a step in one of them; None before the first rollout."""
    call_s: NonNegativeFloat = 0.0
    """What a rollout takes there beside its steps."""

    def rollout_s(self, steps: int) -> float | None:
        """Return what a rollout of so many steps takes."""
        return None if self.step_s is None else self.call_s + steps * self.step_s


class OwnWork(Message):
    """What became of the tasks of a round that ran on the learner's own cores."""

    rollouts: Count
    episodes: Count
    lost: Count = 0
    """Attempts that ended without a result: killed, hung or failed."""
    busy_s: NonNegativeFloat
    """Seconds of all tasks together."""
    elapsed_s: NonNegativeFloat
    """From the plan to the end of the last rollout."""


class RoundResult(Message):
    """What the learner made of a round."""

    round: Count
    policy_version: Count
    """Version after the update, or after the last one before the end of the round."""
    trajectories: TrajectoryCounts
    env_steps: Count
    """Steps used of this round."""
    episode_returns: tuple[Number, ...]
    """Training episodes that ended inside the round's trajectories."""
    dropped_episodes: Count = 0
    """Training episodes that actors sampled again: something in them was not finite."""
    begun_anew: Count = 0
    """Episodes that were to go on, and began anew: where they were left could not be read."""
    lost_replays: Count = 0
    """Those of them whose repeated actions gave another episode."""
    evaluation: EvaluationResult | None
    stats: dict[Identifier, Number]
    """Scalars of the update: losses, KL, entropy, clip fraction. Where rounds overlap, of all
    updates since the end of the round before: `updates` and, of these, `replays`, the largest
    `policy_lag_max`, and the means of the rest."""
    gradients: GradientRecord | None = None
    """What became of the gradients of functions; None where the learner computes them itself."""
    own: OwnWork | None = None
    """What ran on the learner's own cores; None where nothing did."""
    timing: RoundTiming


class RoundRequest(Message):
    """The learner's one call per policy update."""

    lease_id: Identifier
    policy_version: Count
    attempt: Count = 0
    """0 at first; 1 reopens a round of which too little arrived."""
    missing: tuple[Count, ...] | None = None
    """Actor indices to launch again when `attempt` > 0; None means all. None of them where only
    evaluation episodes are."""
    missing_evaluations: tuple[Count, ...] = ()
    """Evaluation episodes to launch again when `attempt` > 0: those that vanished."""
    curvature: Curvature | None = None
    """At the policy of `policy_version`; None when it could not be measured."""
    gradient_noise: GradientNoise | None = None
    """At the same policy as the curvature; None when it could not be measured."""
    num_actors: PositiveInt | None = None
    """Actors to launch in place of what the scaling policy decides, within the job's range. For
    `external` jobs alone; budget and concurrency may still cut it."""
    own: OwnActors | None = None
    """What the learner can run on its own cores; None where it can or may run nothing there."""
    ends: StopReason | None = None
    """Ends the job with this plan, for this reason, after its final evaluation. For `external` jobs
    alone."""
    previous: RoundResult | None = None
    """Of the round that is over with this request: the one before, or, of a job that keeps m rounds
    open, the m-th before. The first m requests of a job bring none."""


class RoundPlan(Message):
    """The scaler's answer: the round as it is being launched, or why there is none."""

    job_id: JobId
    round: Count
    attempt: Count
    policy_version: Count
    num_actors: Count
    """Actors launched (granted); 0 when `stop` is set."""
    num_evaluations: Count
    """Evaluation episodes launched beside them, also with `stop`: the final evaluation."""
    own: Count = 0
    """Actors that run on the learner's own cores, those of the lowest indices; the others are
    functions."""
    own_evaluations: Count = 0
    """Evaluation episodes that do, likewise."""
    requested: Count
    """Actors the scaling policy asked for, before budget and concurrency."""
    boosting_score: Annotated[Number, Field(ge=0, le=1)] | None
    ratio: Number | None
    """Convexity ratio R (equation 2)."""
    reason: str
    """Why this number: score, budget, quota."""
    fragment_noise: bool = False
    """Whether the policy in force looks at the noise of fragments, so that it is to be measured."""
    deadline_s: NonNegativeFloat
    """From the first request on, how long the learner waits at most."""
    age_s: NonNegativeFloat = 0.0
    """How long ago this round was first planned: above 0 when a plan is asked for again."""
    quorum: Count
    """Trajectories without which the round is not used; rounds that overlap are used anyway."""
    stop: StopReason | None
    spent_usd: NonNegativeFloat
    settled: tuple[LedgerLine, ...]
    """Lines of the ledger that no plan before had."""
    settled_from: Count = 0
    """Place of the first of them in the ledger."""
    settled_rounds: Count = 0
    """Rounds, from the first, whose bill is final, unless they are made again."""

    @property
    def function_actors(self) -> range:
        """Indices of the actors that are functions."""
        return range(self.own, self.num_actors)

    @property
    def function_evaluations(self) -> range:
        """Indices of the evaluation episodes that functions play."""
        return range(self.own_evaluations, self.num_evaluations)

    def lines_behind(self, known: int) -> tuple[LedgerLine, ...]:
        """Return the settled lines behind the first so many of the ledger.

        A plan that is asked for again comes with lines that it came with before.
        """
        return self.settled[max(0, known - self.settled_from) :]


class LaunchCounts(Message):
    """What became of a round's invocations, evaluation episodes included."""

    requested: Count
    """Tasks the scaler set out to launch."""
    succeeded: Count
    failed: Count
    """Given up: the learner was told, or could not be."""
    reissued: Count
    """Second executions after a failed first one."""
    throttled: Count
    """Answers 429, each followed by a pause and another try while any was left."""
    unreached: Count = 0
    """Requests that found no connection: nothing started, and each was followed by another try."""
    latest_failure: str = ""
    """Why the latest execution or connection failed; empty when none did."""
    unknown: Count = 0
    """Launched, or about to be, when the scaler stopped: billed at their worst case."""
    cold_starts: Count = 0
    """Of those that succeeded: they had to start an environment first."""
    vanished: Count = 0
    """Of those that failed: they had no fair chance, as a part of the system ended."""
    launch_s: NonNegativeFloat | None = None
    """From the decision to the last task's request; None when none was sent, or nobody knows."""
    step_s: NonNegativeFloat | None = None
    """Mean seconds of an environment step in its rollouts; None without any."""
    call_overhead_s: NonNegativeFloat | None = None
    """Fewest seconds an invocation took beside its steps: request, policy, trajectory, answer.
    The fewest, as an invocation may wait for another's end; None without rollouts."""


class ActorTrouble(Message):
    """What went wrong with a round's actors so far, in all attempts, evaluations included."""

    lost: Count = 0
    """Given up."""
    retried: Count = 0
    """Tries that were followed by another: of executions that failed, and of connections."""
    latest: str = ""
    """Why the latest try failed; empty when none did."""


class RoundRecord(Message):
    """A round as the scaler remembers it."""

    plan: RoundPlan
    result: RoundResult | None
    cost_usd: NonNegativeFloat
    """What has been billed."""
    reserved_usd: NonNegativeFloat = 0.0
    """What is set aside, at its worst, for what is not billed yet."""
    launches: LaunchCounts | None = None
    """Of the newest attempt; None while invocations are in flight."""
    trouble: ActorTrouble = ActorTrouble()
    """Up to date also while invocations are in flight."""


class RoundPage(Message):
    """Rounds in order."""

    rounds: tuple[RoundRecord, ...]
    endings: tuple[RoundRecord, ...] = ()
    """Behind the last rounds: plans that ended the job, which sampled nothing and are no rounds."""
    next_cursor: str | None


class RoundLine(Message):
    """One line of `rounds.jsonl`, a run's record and the source of truth for every plot."""

    plan: RoundPlan
    result: RoundResult | None
    """None in the lines of plans that end the job, one for each round that a job keeps open; the
    last of them holds the final evaluation."""
    curvature: Curvature | None
    """Of the policy after the update."""
    evaluation: EvaluationResult | None
    """Of the policy before the update, the one the round was collected with."""
