"""A job's detector by its name."""

import pytest

from learning.detectors.detector import Detector, Measurement
from learning.detectors.registry import DETECTORS, build_detector
from shared.contracts.detector_rule import DetectorRule


class _Silent:
    def __init__(self, rule: DetectorRule) -> None:
        self.rule = rule

    def measure(self, *_: object) -> Measurement | None:
        return None


@pytest.mark.parametrize("name", sorted(DETECTORS))
def test_every_detector_is_made_from_a_jobs_rule(name: str) -> None:
    assert callable(build_detector(DetectorRule(name=name)).measure)


def test_a_new_one_is_a_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS, "silent", _Silent)
    rule = DetectorRule(name="silent")
    made: Detector = build_detector(rule)
    assert isinstance(made, _Silent)
    assert made.rule is rule


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'hesian', and there is: hessian"):
        build_detector(DetectorRule(name="hesian"))
