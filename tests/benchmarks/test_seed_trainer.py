"""What tells two jobs of single seeds apart."""

from dataclasses import replace

import pytest

from benchmarks.seed_trainer import spec_digest
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.presets import ALGORITHMS


def test_a_seed_is_trained_again_once_its_preset_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = JobSpec(algorithm="impact", preset="standard", seed=1)
    before = spec_digest(spec)
    assert spec_digest(spec.model_copy()) == before
    assert spec_digest(spec.model_copy(update={"seed": 2})) != before
    traits = ALGORITHMS["impact"]
    changed = traits.presets["standard"].model_copy(update={"num_epochs": 3})
    presets = {**traits.presets, "standard": changed}
    monkeypatch.setitem(ALGORITHMS, "impact", replace(traits, presets=presets))
    assert spec_digest(spec) != before
