"""Settings of processes and threads, tried in processes of their own: other tests keep theirs."""

import os
import subprocess
import sys

import pytest

from learning.cpu.torch_settings import configure_torch

SCRIPT = """
import numpy, torch
from threadpoolctl import threadpool_info
from learning.cpu.torch_settings import configure_torch
configure_torch(2)
def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
assert torch.get_num_threads() == 2
assert blas_threads() and set(blas_threads()) == {2}
configure_torch()
assert torch.get_num_threads() == 1
assert set(blas_threads()) == {1}
assert torch.are_deterministic_algorithms_enabled()
assert torch.isfinite(torch.ones(3, 3) @ torch.ones(3, 3)).all()
"""


OTHER_THREAD = """
import threading, torch
from threadpoolctl import threadpool_info
from learning.cpu.torch_settings import configure_thread, configure_torch
def openmp_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}
seen = []
def look():
    configure_thread()
    torch.addmm(torch.ones(32), torch.ones(390, 32), torch.ones(32, 32))
    seen.append(openmp_threads())
configure_torch()
thread = threading.Thread(target=look)
thread.start()
thread.join()
assert seen == [{1}], seen
"""


def test_threads_and_determinism_are_set() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)


def test_another_thread_computes_with_as_many_threads() -> None:
    cores = {"OMP_NUM_THREADS": "2"}  # as many as OpenMP would find on a machine with two
    subprocess.run(
        [sys.executable, "-c", OTHER_THREAD], check=True, timeout=60, env=os.environ | cores
    )


def test_no_threads_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threads \(0\) must be at least 1"):
        configure_torch(0)
