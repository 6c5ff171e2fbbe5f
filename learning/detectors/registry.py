"""Detectors by name, for a job's `detector.name`."""

from collections.abc import Callable

from learning.detectors.detector import Detector
from learning.detectors.hessian import HessianDetector
from shared.contracts.detector_rule import DetectorRule

DETECTORS: dict[str, Callable[[DetectorRule], Detector]] = {
    "hessian": HessianDetector,
}


def build_detector(rule: DetectorRule) -> Detector:
    """Return a job's detector.

    Raises:
        ValueError: There is none of that name.
    """
    factory = DETECTORS.get(rule.name)
    if factory is None:
        known = ", ".join(sorted(DETECTORS))
        raise ValueError(f"detector.name is {rule.name!r}, and there is: {known}")
    return factory(rule)
