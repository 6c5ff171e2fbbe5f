"""The actor: one rollout per invocation."""

import os

# Before NumPy is loaded: with several threads, matrix products, and so actions of several
# environments, would depend on the machine's number of cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
