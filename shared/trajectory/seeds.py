"""Seeds of single actors, derived so that no two rollouts of a job share one."""

import hashlib
from typing import Literal

Purpose = Literal["sample", "evaluate", "later", "search", "direction"]
"""What a seed is for: `evaluate` within a job, `later` when it is over; `search` of the episodes
along a direction, `direction` of that itself."""


def actor_seed(job_seed: int, *, mode: Purpose, round_index: int, actor_index: int) -> int:
    """Return the 63-bit seed of one rollout.

    A cryptographic hash of the identity, so nearby identities give unrelated streams, and any
    process on any machine derives the same number. The attempt is left out on purpose: a rollout
    that is repeated after a crash must be the same rollout.

    >>> actor_seed(0, mode="sample", round_index=0, actor_index=0) != actor_seed(
    ...     0, mode="sample", round_index=0, actor_index=1
    ... )
    True
    """
    identity = f"{job_seed}/{mode}/{round_index}/{actor_index}".encode()
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") >> 1


def round_uniform(job_seed: int, *, purpose: str, round_index: int) -> float:
    """Return a number in [0, 1) that a round's decision may treat as random.

    Derived like an actor's seed, so a round that is decided again is decided the same.

    >>> 0.0 <= round_uniform(0, purpose="score", round_index=1) < 1.0
    True
    """
    identity = f"{job_seed}/{purpose}/{round_index}".encode()
    digest = hashlib.blake2b(identity, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53
