"""The life of a job: admission, leases, end."""
