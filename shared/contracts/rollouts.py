"""What the scaler asks of an actor, and what the actor reports."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from shared.contracts.job_spec import EnvironmentRef
from shared.contracts.message import (
    Count,
    JobId,
    Message,
    NonNegativeFloat,
    Number,
    PositiveInt,
)

LONGEST_PING_S = 10.0
MAX_POLICY_BYTES = 64 * 2**20
"""Largest policy, uncompressed, that an actor loads."""
POLICY_HEADER_BYTES = 8192
"""What a policy has beside numbers: names, shapes, the counts of its choices."""


class RolloutTask(Message):
    """The Lambda event of one rollout (at most 4 KB)."""

    mode: Literal["sample", "evaluate"]
    """`sample`: a stochastic fragment of `steps`; `evaluate`: one deterministic episode."""
    job_id: JobId
    round: Count
    attempt: Count
    actor_index: Count
    policy_version: Count
    lease_hash: Annotated[str, Field(max_length=64)] = ""
    """Names the learner's hold on the job. One that goes back to an older checkpoint publishes
    versions again, and they need not be the policies they were."""
    env: EnvironmentRef
    steps: PositiveInt
    num_envs: PositiveInt = 1
    continues: bool = False
    """Whether its episodes begin where others were left, and are left for others."""
    horizon: PositiveInt | None = None
    """Steps after a reset at which an episode is cut; None leaves it to the environment."""
    discount: Annotated[Number, Field(ge=0.0, le=1.0)] = 1.0
    """Gamma of the discounted return that goes on with an episode."""
    replay_steps: Count = 0
    """Longest episode, in steps, that is left as its actions, to be repeated by the next actor. 0:
    episodes are left as the environment's state."""
    rebuild: bool = False
    """Whether every reset builds the environment anew."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """The actor's own seed, derived from (job seed, mode, round, actor index): not the attempt,
    so that a repeated rollout is the same rollout."""


class DescribeTask(Message):
    """The Lambda event that asks the actor image what an environment looks like."""

    mode: Literal["describe"] = "describe"
    env: EnvironmentRef


class PingTask(Message):
    """The Lambda event that keeps an idle environment from being let go of; nothing is done."""

    mode: Literal["ping"] = "ping"
    hold_s: Annotated[NonNegativeFloat, Field(le=LONGEST_PING_S)]
    """How long it holds its environment: of pings that are sent together no two may share one."""


class PingReport(Message):
    """The Lambda reply to a `PingTask`."""

    cold_start: bool
    """Whether there was none to keep, and one was started."""


ActorTask = RolloutTask | DescribeTask | PingTask
ACTOR_TASK: TypeAdapter[ActorTask] = TypeAdapter(Annotated[ActorTask, Field(discriminator="mode")])


class ActorReport(Message):
    """The Lambda reply to a `RolloutTask`."""

    job_id: JobId
    round: Count
    actor_index: Count
    mode: Literal["sample", "evaluate"]
    outcome: Literal["stored", "duplicate", "late", "cancelled"]
    """What the cache did with the result."""
    steps: Count
    episode_returns: tuple[Number, ...]
    """Undiscounted returns of the episodes that ended in this rollout."""
    episode_lengths: tuple[PositiveInt, ...]
    dropped_episodes: Count = 0
    """Episodes sampled again because something in them was not finite."""
    fetch_s: NonNegativeFloat | None = None
    """Fetching policy and episodes, and building environments; None where it was not measured."""
    rollout_s: NonNegativeFloat
    push_s: NonNegativeFloat | None = None
    """Storing the result; None where it was not measured."""
    total_s: NonNegativeFloat
    """Handler time: fetching the policy, rolling out, pushing the result."""
    cold_start: bool
    payload_bytes: Count
