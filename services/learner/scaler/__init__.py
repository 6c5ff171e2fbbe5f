"""The learner's side of the scaler: calls and leases."""
