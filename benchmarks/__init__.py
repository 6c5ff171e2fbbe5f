"""Performance and returns, measured beside other people's software."""
