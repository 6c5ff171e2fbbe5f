"""Seeds of actors, derived so that no two rollouts of a job share a seed."""

import hashlib
from typing import Literal

Purpose = Literal["sample", "evaluate", "later", "search", "direction"]
"""Purpose of a seed. `evaluate`: evaluations within a job. `later`: evaluations after its end.
`search`: the episodes along a direction. `direction`: the direction itself."""


def actor_seed(job_seed: int, *, mode: Purpose, round_index: int, actor_index: int) -> int:
    """Return the 63-bit seed of one rollout.

    It is a cryptographic hash of the arguments. So similar arguments give unrelated streams, and
    every process derives the same number. The attempt is left out on purpose: a rollout repeated
    after a crash must be the same rollout.

    >>> actor_seed(0, mode="sample", round_index=0, actor_index=0) != actor_seed(
    ...     0, mode="sample", round_index=0, actor_index=1
    ... )
    True
    """
    identity = f"{job_seed}/{mode}/{round_index}/{actor_index}".encode()
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") >> 1


def round_uniform(job_seed: int, *, purpose: str, round_index: int) -> float:
    """Return a pseudo-random number in [0, 1) for a round's decision.

    It is derived like an actor's seed, so a repeated decision gives the same result.

    >>> 0.0 <= round_uniform(0, purpose="score", round_index=1) < 1.0
    True
    """
    identity = f"{job_seed}/{purpose}/{round_index}".encode()
    digest = hashlib.blake2b(identity, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53
