"""Every cache key and lifetime, in one place.

The job id stands in braces, so that a clustered cache keeps all of a job's keys in one hash slot.
No other module builds a key.
"""

TTL_MS = 3_600_000
"""Lifetime of every key: far above any round, so that only a forgotten job's keys ever expire."""


def policy(job_id: str, policy_version: int) -> str:
    """Weights of one policy version (encoded arrays)."""
    return f"nitro:{{{job_id}}}:policy:{policy_version}"


def starts(job_id: str, round_index: int) -> str:
    """Hash of a round: the snapshots that its actors resume, by place."""
    return f"nitro:{{{job_id}}}:round:{round_index}:starts"


def cancel(job_id: str) -> str:
    """Leases whose actors are no longer needed; actors read it before they start."""
    return f"nitro:{{{job_id}}}:cancel"


def claims(job_id: str, round_index: int) -> str:
    """Hash of a round: first writers, failures, counts of late and duplicate results, closed."""
    return f"nitro:{{{job_id}}}:round:{round_index}:claims"


def arrivals(job_id: str, round_index: int) -> str:
    """List of a round on which the learner blocks: a token per stored result or failed launch."""
    return f"nitro:{{{job_id}}}:round:{round_index}:arrivals"


def queue(job_id: str, round_index: int) -> str:
    """Stream of a search's round: parts of its iterations, for actors to take."""
    return f"nitro:{{{job_id}}}:round:{round_index}:queue"


def result(job_id: str, round_index: int, mode: str, actor_index: int) -> str:
    """A result: an encoded trajectory (`sample`), part (`search`) or episode (`evaluate`)."""
    return f"nitro:{{{job_id}}}:round:{round_index}:{mode}:{actor_index}"


def weights(job_id: str, lease_hash: str, version: int) -> str:
    """One version of a learner's parameters, for its functions."""
    return f"nitro:{{{job_id}}}:weights:{lease_hash}:{version}"


def gradient_slice(job_id: str, lease_hash: str, round_index: int, call: int) -> str:
    """Samples of one gradient of a round."""
    return f"nitro:{{{job_id}}}:grad:{lease_hash}:{round_index}:slice:{call}"


def gradient(job_id: str, lease_hash: str, round_index: int, call: int) -> str:
    """One function's gradient."""
    return f"nitro:{{{job_id}}}:grad:{lease_hash}:{round_index}:result:{call}"


def gradient_claims(job_id: str, lease_hash: str, round_index: int) -> str:
    """Hash of a round: first writers of gradients, failed calls, count of duplicates."""
    return f"nitro:{{{job_id}}}:grad:{lease_hash}:{round_index}:claims"


def gradient_arrivals(job_id: str, lease_hash: str, round_index: int) -> str:
    """List of a round on which the learner blocks: a token per stored gradient or failed call."""
    return f"nitro:{{{job_id}}}:grad:{lease_hash}:{round_index}:arrivals"
