"""Whether a call is made by whoever holds the job."""

from services.scaler.book.records import JobRecord, LeaseRecord
from services.scaler.refusals import conflict
from shared.contracts.leases import hash_of_lease


def held_lease(record: JobRecord, lease_id: str) -> LeaseRecord:
    """Return the lease a call is made under.

    Raises:
        ApiError: The caller does not hold the job (any more).
    """
    lease = record.lease
    if lease is None or lease.lease_id != lease_id:
        raise conflict(
            f"lease {hash_of_lease(lease_id)} on job {record.job.job_id} is lost: it expired or "
            "was given up, or the job has ended"
        )
    return lease
