"""Where jobs, rounds, leases and the ledger are kept."""
