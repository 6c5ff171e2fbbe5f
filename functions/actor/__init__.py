"""The actor: one rollout per invocation."""

import os

# Before NumPy is loaded: with several threads the sums of a matrix product, and so the actions of
# several environments side by side, would depend on how many cores the machine has.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
