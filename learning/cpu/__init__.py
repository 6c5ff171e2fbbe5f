"""Fast paths on a CPU: NumPy and a second process."""
