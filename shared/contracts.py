"""Messages between Nitro's parts, all JSON.

The story they tell: a user posts a `JobSpec`; a learner takes a `Lease` on the job; before every
round it sends a `RoundRequest` and gets a `RoundPlan`; the scaler sends each actor a `RolloutTask`
and gets an `ActorReport`. Arrays never travel in here: they go through the trajectory cache.
"""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, TypeAdapter

from shared.job_spec import EnvironmentRef, JobSpec
from shared.message import Count, Identifier, JobId, Message, NonNegativeFloat, PositiveInt

StopReason = Literal["max_rounds", "target_return", "budget", "max_wall", "user", "error"]
JobStatus = Literal["queued", "running", "stopping", "succeeded", "stopped", "failed"]
FINISHED: frozenset[JobStatus] = frozenset({"succeeded", "stopped", "failed"})


# --- environment ----------------------------------------------------------------------------


class ObservationSpec(Message):
    """One observation: a box of numbers."""

    shape: tuple[PositiveInt, ...]
    dtype: Literal["float32", "uint8"]
    """Type on the wire; environments that give float64 are cast to float32."""


class ContinuousActionSpec(Message):
    """A bounded box of real actions."""

    kind: Literal["continuous"] = "continuous"
    low: tuple[FiniteFloat, ...]
    high: tuple[FiniteFloat, ...]


class DiscreteActionSpec(Message):
    """One of `n` actions, numbered from 0."""

    kind: Literal["discrete"] = "discrete"
    n: PositiveInt


ActionSpec = Annotated[ContinuousActionSpec | DiscreteActionSpec, Field(discriminator="kind")]


class EnvironmentSpec(Message):
    """What the actor image says about an environment: all the learner ever needs to know of it."""

    env_id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: PositiveInt | None
    versions: dict[str, str]
    """Library name to version, for the run's record."""


# --- actor ----------------------------------------------------------------------------------


class RolloutTask(Message):
    """The Lambda event of one rollout (at most 4 KB)."""

    mode: Literal["sample", "evaluate"]
    """`sample`: a stochastic fragment of `steps`; `evaluate`: one deterministic episode."""
    job_id: JobId
    round: Count
    attempt: Count
    actor_index: Count
    policy_version: Count
    env: EnvironmentRef
    steps: PositiveInt
    num_envs: PositiveInt = 1
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """The actor's own seed, derived from (job seed, mode, round, actor index): not the attempt,
    so that a repeated rollout is the same rollout."""


class DescribeTask(Message):
    """The Lambda event that asks the actor image what an environment looks like."""

    mode: Literal["describe"] = "describe"
    env: EnvironmentRef


ActorTask = Annotated[RolloutTask | DescribeTask, Field(discriminator="mode")]
ACTOR_TASK: TypeAdapter[RolloutTask | DescribeTask] = TypeAdapter(ActorTask)


class ActorReport(Message):
    """The Lambda reply to a `RolloutTask`."""

    job_id: JobId
    round: Count
    actor_index: Count
    mode: Literal["sample", "evaluate"]
    outcome: Literal["stored", "duplicate", "late", "cancelled"]
    """What the cache did with the result."""
    steps: Count
    episode_returns: tuple[FiniteFloat, ...]
    """Undiscounted returns of the episodes that ended in this rollout."""
    episode_lengths: tuple[PositiveInt, ...]
    rollout_s: NonNegativeFloat
    total_s: NonNegativeFloat
    """Handler time: fetching the policy, rolling out, pushing the result."""
    cold_start: bool
    payload_bytes: Count


# --- rounds ---------------------------------------------------------------------------------


class Curvature(Message):
    """Extreme eigenvalues of the Hessian of the policy surrogate objective (section 5.1)."""

    lambda_max: FiniteFloat
    lambda_min: FiniteFloat
    residual: NonNegativeFloat
    """Larger of the two Ritz residuals, relative to the spectral radius."""
    matvecs: Count
    num_samples: PositiveInt
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
    """Never arrived while the round was open."""


class EvaluationResult(Message):
    """Deterministic episodes of one policy version."""

    policy_version: Count
    returns: tuple[FiniteFloat, ...]
    lengths: tuple[PositiveInt, ...]


class RoundTiming(Message):
    """Where a round's wall time went, in seconds."""

    plan_s: NonNegativeFloat
    """Publishing the policy and asking for the round."""
    collect_s: NonNegativeFloat
    update_s: NonNegativeFloat
    curvature_s: NonNegativeFloat
    evaluate_s: NonNegativeFloat
    """Waiting for evaluation episodes after the update; most of them ran during it."""
    checkpoint_s: NonNegativeFloat
    """Writing record and checkpoint of the round before: this one's are written after this."""
    total_s: NonNegativeFloat


class RoundResult(Message):
    """What the learner made of a round."""

    round: Count
    policy_version: Count
    """Version after the update."""
    trajectories: TrajectoryCounts
    env_steps: Count
    """Steps used in this round."""
    episode_returns: tuple[FiniteFloat, ...]
    """Training episodes that ended inside the round's trajectories."""
    evaluation: EvaluationResult | None
    stats: dict[Identifier, FiniteFloat]
    """Scalars of the update: losses, KL, entropy, clip fraction."""
    timing: RoundTiming


class RoundRequest(Message):
    """The learner's one call per policy update."""

    lease_id: Identifier
    policy_version: Count
    attempt: Count = 0
    """0 at first; 1 reopens a round of which too little arrived."""
    missing: tuple[Count, ...] | None = None
    """Actor indices to launch again when `attempt` > 0; None means all."""
    curvature: Curvature | None = None
    """At the policy of `policy_version`; None when it could not be measured."""
    gradient_noise_scale: FiniteFloat | None = None
    previous: RoundResult | None = None


LedgerItem = Literal[
    "learner",
    "lambda_duration",
    "lambda_requests",
    "provisioned_concurrency",
    "cache",
    "scaler",
]


class LedgerLine(Message):
    """One item of one round's bill: `amount_usd = quantity * unit_price_usd`."""

    round: Count
    attempt: Count
    item: LedgerItem
    quantity: NonNegativeFloat
    unit: Literal["second", "GB-second", "request"]
    unit_price_usd: NonNegativeFloat
    amount_usd: NonNegativeFloat


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
    requested: Count
    """Actors the scaling policy asked for, before budget and concurrency."""
    boosting_score: Annotated[FiniteFloat, Field(ge=0, le=1)] | None
    ratio: FiniteFloat | None
    """Convexity ratio R (equation 2)."""
    reason: str
    """Why this number: score, budget, quota."""
    deadline_s: NonNegativeFloat
    """From the first request on, how long the learner waits at most."""
    age_s: NonNegativeFloat = 0.0
    """How long ago this round was first planned: above 0 when a plan is asked for again."""
    quorum: Count
    """Trajectories without which the round is not used."""
    stop: StopReason | None
    spent_usd: NonNegativeFloat
    settled: tuple[LedgerLine, ...]
    """Bill of the previous round, now final."""


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
    unknown: Count = 0
    """Launched, or about to be, when the scaler stopped: billed at their worst case."""


class RoundRecord(Message):
    """A round as the scaler remembers it."""

    plan: RoundPlan
    result: RoundResult | None
    cost_usd: NonNegativeFloat
    launches: LaunchCounts | None = None
    """Of the newest attempt; None while invocations are in flight."""


# --- jobs and leases ------------------------------------------------------------------------


class JobProgress(Message):
    """How far a job is."""

    rounds: Count = 0
    env_steps: Count = 0
    last_return: FiniteFloat | None = None
    """Mean of the latest evaluation."""
    best_return: FiniteFloat | None = None


class Job(Message):
    """A job as the API shows it."""

    job_id: JobId
    spec: JobSpec
    environment: EnvironmentSpec
    status: JobStatus
    stop_reason: StopReason | None = None
    error: str | None = None
    created_at: float
    """Unix seconds, like every `_at` field."""
    started_at: float | None = None
    finished_at: float | None = None
    progress: JobProgress = JobProgress()
    spent_usd: NonNegativeFloat = 0.0


class JobPage(Message):
    """Jobs, newest first."""

    jobs: tuple[Job, ...]
    next_cursor: str | None
    """Pass as `cursor` to get the next page; None at the end."""


class RoundPage(Message):
    """Rounds in order."""

    rounds: tuple[RoundRecord, ...]
    next_cursor: str | None


class JobCost(Message):
    """A job's bill so far."""

    job_id: JobId
    total_usd: NonNegativeFloat
    """Settled lines plus what is reserved for the round in flight."""
    reserved_usd: NonNegativeFloat
    by_item: dict[LedgerItem, NonNegativeFloat]
    lines: tuple[LedgerLine, ...]
    price_table: str
    projected_wall_s: NonNegativeFloat
    """How long the same rounds would take on AWS."""
    assumptions: tuple[str, ...]


class ResumeRequest(Message):
    """Continue a stopped or failed job."""

    budget_usd: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Raises the job's budget; None keeps it."""
    max_rounds: PositiveInt | None = None
    """Raises the job's number of rounds; None keeps it."""


class LeaseRequest(Message):
    """A learner asks for work."""

    learner_id: Identifier
    wait_s: Annotated[FiniteFloat, Field(ge=0, le=60)] = 20.0
    """How long the scaler may hold the request open until a job is queued."""


class Lease(Message):
    """The right to train one job, until it expires or is given up."""

    lease_id: Identifier
    job: Job
    expires_in_s: NonNegativeFloat
    heartbeat_every_s: NonNegativeFloat


class LeaseState(Message):
    """The answer to a heartbeat."""

    expires_in_s: NonNegativeFloat
    stop: StopReason | None
    """Set when the learner should end the job after the update in hand."""


class FinishRequest(Message):
    """The learner's last word on a job."""

    lease_id: Identifier
    status: Literal["succeeded", "stopped", "failed"]
    stop_reason: StopReason
    error: str | None = None
    final_evaluation: EvaluationResult | None = None


class Problem(Message):
    """An error, as RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: tuple["FieldError", ...] = ()


class FieldError(Message):
    """One wrong field of a request."""

    field: str
    """Dotted path, such as `actors.min`."""
    message: str
