"""Messages as JSON: jobs, rounds, leases, bills and errors."""
