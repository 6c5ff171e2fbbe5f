"""Dollars and seconds to a return, and the durations they multiply."""
