"""A new scaling policy, by its two classes and the registry, as docs/extending.md says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from nitro.spec.scaling_option import build_scaling, policies_table
from nitro.spec.spec_file import build_spec
from services.scaler.scaling.base import ScalingDecision, ScalingInput, ScalingPolicy
from services.scaler.scaling.registry import SCALING_POLICIES
from shared.contracts.message import PositiveInt
from shared.contracts.scaling_spec import POLICIES, Policy
from tests.services.scaler.running import Scaler


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class SawtoothScaling(Policy):
        """Up by one actor a round, then from the fewest again."""

        policy: Literal["sawtooth"]
        every_rounds: PositiveInt = 3
        """Rounds up to the next fall."""

    class SawtoothPolicy(ScalingPolicy[SawtoothScaling]):
        def decide(self, seen: ScalingInput) -> ScalingDecision:
            step = seen.round_index % self.parameters.every_rounds
            requested = seen.actors.clip(seen.actors.min + step)
            return ScalingDecision(requested=requested, reason=f"sawtooth: {requested} actors")

    monkeypatch.setitem(SCALING_POLICIES, "sawtooth", SawtoothPolicy)
    yield
    del POLICIES["sawtooth"]


@pytest.mark.usefixtures("_registered")
def test_a_scaling_policy_is_added_without_editing_a_file(scaler: Scaler) -> None:
    sawtooth = build_scaling(
        "sawtooth", num_actors=None, assignments=["every_rounds=2"], runs_dir=Path()
    )
    spec = build_spec(
        file=None,
        options={
            "scaling": sawtooth.model_dump(),
            "actors": {"min": 4, "max": 8},
            "evaluation.every_rounds": 0,
        },
    )
    job = scaler.submit(**spec.model_dump(mode="json"))
    assert job.spec.scaling == sawtooth
    lease = scaler.lease()
    plans = [scaler.round(lease, index) for index in range(3)]
    assert [plan.num_actors for plan in plans] == [4, 5, 4]
    assert plans[1].reason == "sawtooth: 5 actors"
    problem = scaler.refused({"scaling": {"policy": "sawtooth", "every_rounds": 0}})
    assert problem.errors[0].field == "scaling.every_rounds"
    assert "sawtooth" in policies_table().columns[0].cells
