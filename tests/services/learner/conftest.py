"""The learner's tests run with torch set as the learner sets it."""

import pytest

from learning.cpu.torch_settings import configure_torch


@pytest.fixture(scope="session", autouse=True)
def _torch_as_in_the_learner() -> None:
    configure_torch()
