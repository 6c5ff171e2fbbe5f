"""Calls of learner functions: set aside money, launch, account."""
