"""Estimates of a job's time and cost in each place."""
