"""The scaler's tasks for actors, and the actors' reports."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.message import (
    Count,
    JobId,
    Message,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveInt,
)

LONGEST_PING_S = 10.0
MAX_POLICY_BYTES = 64 * 2**20
"""Largest policy, uncompressed, that an actor loads."""
POLICY_HEADER_BYTES = 8192
"""A policy's metadata: names, shapes, the counts of its choices."""


class SearchTask(Message):
    """Whole episodes of perturbed policies, in place of a fragment.

    An iteration has `2 * directions` episodes: i and `directions + i` go along direction i, there
    and back. They are divided into parts, and a round has the parts of several iterations. The
    round's actors take parts from a queue until the learner closes it.
    """

    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """The job's: with the policy's version it gives the directions and the episodes, whoever plays
    them."""
    directions: PositiveInt
    parts: PositiveInt
    """Of an iteration."""
    exploration_std: PositiveFloat
    longest: PositiveInt
    """Steps at which an episode is cut."""
    moments: bool
    """Whether the moments of what each episode observed are reported."""

    def episodes(self, part: int) -> range:
        """Return the episodes of one of an iteration's parts."""
        return range(part, 2 * self.directions, self.parts)


class RolloutTask(Message):
    """The Lambda event of one rollout (at most 4 KB)."""

    mode: Literal["sample", "evaluate"]
    """`sample`: a stochastic fragment of `steps`, or a `search`; `evaluate`: one deterministic
    episode."""
    job_id: JobId
    round: Count
    attempt: Count
    actor_index: Count
    policy_version: Count
    lease_hash: Annotated[str, Field(max_length=64)] = ""
    """Digest of the lease. A learner that resumes from an older checkpoint publishes versions
    again, possibly with other policies.
    """
    env: EnvironmentRef
    steps: PositiveInt
    num_envs: PositiveInt = 1
    continues: bool = False
    """Whether its episodes continue earlier ones, and are left for later actors."""
    horizon: PositiveInt | None = None
    """Steps after a reset at which an episode is cut; None leaves it to the environment."""
    discount: Annotated[Number, Field(ge=0.0, le=1.0)] = 1.0
    """Discount of the running return, which continues with an episode."""
    replay_steps: Count = 0
    """Longest episode, in steps, to leave as its actions for the next actor to repeat. 0: episodes
    are left as the environment's state.
    """
    search: SearchTask | None = None
    """Replaces the fragment."""
    rebuild: bool = False
    """Whether every reset rebuilds the environment."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)]
    """The actor's seed, derived from (job seed, mode, round, actor index), not from the attempt, so
    that a repeated rollout is identical.
    """


class DescribeTask(Message):
    """The Lambda event that asks the actor image to describe an environment."""

    mode: Literal["describe"] = "describe"
    env: EnvironmentRef


class PingTask(Message):
    """The Lambda event of a no-op that keeps an idle environment alive."""

    mode: Literal["ping"] = "ping"
    hold_s: Annotated[NonNegativeFloat, Field(le=LONGEST_PING_S)]
    """How long it occupies its environment, so that no two concurrent pings share one."""


class PingReport(Message):
    """The Lambda reply to a `PingTask`."""

    cold_start: bool
    """Whether it started a new environment because none was left."""


ActorTask = RolloutTask | DescribeTask | PingTask
ACTOR_TASK: TypeAdapter[ActorTask] = TypeAdapter(Annotated[ActorTask, Field(discriminator="mode")])


class ActorReport(Message):
    """The Lambda reply to a `RolloutTask`."""

    job_id: JobId
    round: Count
    actor_index: Count
    mode: Literal["sample", "evaluate"]
    outcome: Literal["stored", "duplicate", "late", "cancelled"]
    """Outcome in the cache."""
    steps: Count
    episode_returns: tuple[Number, ...]
    """Undiscounted returns of the episodes that ended in this rollout."""
    episode_lengths: tuple[PositiveInt, ...]
    dropped_episodes: Count = 0
    """Episodes sampled again because of a non-finite number."""
    fetch_s: NonNegativeFloat | None = None
    """Fetching policy and episodes, and building environments; None if not measured."""
    rollout_s: NonNegativeFloat
    push_s: NonNegativeFloat | None = None
    """Storing the result; None if not measured."""
    total_s: NonNegativeFloat
    """Handler time: fetching the policy, rolling out, pushing the result."""
    cold_start: bool
    payload_bytes: Count
