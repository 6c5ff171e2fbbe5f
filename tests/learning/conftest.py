"""Torch as the learner sets it, a second process, and networks that count as large."""

from collections.abc import Iterator

import pytest

from learning.algorithms import network_steps
from learning.cpu import second_process
from learning.cpu.second_process import SecondProcess
from learning.cpu.torch_settings import configure_torch
from learning.networks import numpy_mlp


@pytest.fixture(scope="session", autouse=True)
def _torch_as_in_the_learner() -> None:
    configure_torch()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondProcess]:
    """A second process that is given every update it could take."""
    monkeypatch.setattr(network_steps, "MIN_MULTIPLICATIONS", 0)
    monkeypatch.setattr(second_process, "RESTS", 0)  # however busy this machine is
    made = SecondProcess()
    yield made
    made.close()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network counts as large."""
    monkeypatch.setattr(numpy_mlp, "LARGE_PRODUCT", 0)
