"""A second process, and networks that count as large, for tests of gradient steps."""

from collections.abc import Iterator

import pytest
import torch

from services.learner import gemm, second_process
from services.learner.algorithms import network_steps
from services.learner.second_process import SecondProcess


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondProcess]:
    """A second process that is given every update it could take."""
    monkeypatch.setattr(network_steps, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(second_process, "RESTS", 0)  # however busy this machine is
    made = SecondProcess()
    yield made
    made.close()


@pytest.fixture(params=[False, True], ids=["numpy", "mkl"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product counts as large, and goes to one library or the other."""
    if request.param and not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("without MKL")
    monkeypatch.setattr(gemm, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(gemm, "_MKL", request.param)
