"""Calls of learner functions: reserve money, launch, bill."""
