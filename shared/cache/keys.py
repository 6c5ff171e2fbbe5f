"""Every cache key and lifetime, in one place.

The job id stands in braces so that a clustered cache keeps all of a job's keys in one hash slot.
Nothing else in the project spells a key.
"""

TTL_MS = 3_600_000
"""Lifetime of every key: far above any round, so that only a forgotten job's keys ever expire."""


def policy(job_id: str, policy_version: int) -> str:
    """Weights of one policy version (encoded arrays)."""
    return f"nitro:{{{job_id}}}:policy:{policy_version}"


def starts(job_id: str, round_index: int) -> str:
    """Hash of a round: by place, where the episodes were left that its actors go on with."""
    return f"nitro:{{{job_id}}}:round:{round_index}:starts"


def cancel(job_id: str) -> str:
    """Leases whose actors are not needed any more; they read it before they start."""
    return f"nitro:{{{job_id}}}:cancel"


def claims(job_id: str, round_index: int) -> str:
    """Hash of a round: who stored first, who failed, how many came late or twice, if closed."""
    return f"nitro:{{{job_id}}}:round:{round_index}:claims"


def arrivals(job_id: str, round_index: int) -> str:
    """List of a round the learner blocks on: one token per stored result or failed launch."""
    return f"nitro:{{{job_id}}}:round:{round_index}:arrivals"


def result(job_id: str, round_index: int, mode: str, actor_index: int) -> str:
    """One actor's result: an encoded trajectory (`sample`) or episode (`evaluate`)."""
    return f"nitro:{{{job_id}}}:round:{round_index}:{mode}:{actor_index}"
