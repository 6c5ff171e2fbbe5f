"""Needs and costs of a deployment."""
