"""Detectors by the name that a job's `detector.name` gives."""

from collections.abc import Callable

from services.learner.detector import Detector
from services.learner.hessian_detector import HessianDetector
from shared.job_spec import DetectorRule

DETECTORS: dict[str, Callable[[DetectorRule], Detector]] = {
    "hessian": HessianDetector,
}


def build_detector(rule: DetectorRule) -> Detector:
    """Return the detector a job asks for.

    Raises:
        ValueError: There is none of that name.
    """
    factory = DETECTORS.get(rule.name)
    if factory is None:
        known = ", ".join(sorted(DETECTORS))
        raise ValueError(f"detector.name is {rule.name!r}, and there is: {known}")
    return factory(rule)
