"""Claims a job's files, so that an earlier learner can no longer write them."""

from services.learner.scaler.client import LeaseLostError, ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.artifacts.store import ArtifactStore


def claim_files(artifacts: ArtifactStore, held: HeldLease, scaler: ScalerClient) -> None:
    """Claim a job's files under its lease.

    This process may have been paused since it got the lease, so it checks the lease again: a
    learner that has lost the job must claim nothing.

    Raises:
        LeaseLostError: Another learner has the job, or it was deleted.
        FencedError: Another learner has claimed its files.
    """
    artifacts.claim(held.job.job_id, held.epoch)
    try:
        scaler.heartbeat(held.lease_id)
    except LeaseLostError:
        artifacts.withdraw(held.job.job_id)
        raise
