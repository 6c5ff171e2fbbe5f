"""Checks of a sweep's environments before its first job."""

import os
from pathlib import Path

import pytest

from nitro.sweeps import place
from nitro.sweeps.folder import Asked
from nitro.sweeps.place import require_possible
from nitro.sweeps.spec import SweepSpec


def test_a_check_that_is_interrupted_leaves_no_variables_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        assert os.environ["SIM_MODE"] == "fast"
        raise KeyboardInterrupt

    monkeypatch.setattr(place, "require_fit", interrupted)
    job = {"env_variables": {"SIM_MODE": "fast"}}
    spec = SweepSpec.model_validate({"name": "a", "environments": ["CartPole-v1"], "job": job})
    with pytest.raises(KeyboardInterrupt):
        require_possible(Asked(spec=spec), tmp_path, api_url=None)
    assert "SIM_MODE" not in os.environ
