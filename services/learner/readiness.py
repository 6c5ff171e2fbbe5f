"""The learner's readiness: whether its dependencies answered its last calls."""

import logging
from collections.abc import Iterable

_LOG = logging.getLogger(__name__)
_NOT_YET = "not asked yet"


class Readiness:
    """The learner's dependencies, with reasons for failures.

    Thread-safe: the names are fixed, and each value is replaced atomically.
    """

    def __init__(self, needed: Iterable[str]) -> None:
        """Start without any answer."""
        self._why: dict[str, str | None] = dict.fromkeys(needed, _NOT_YET)

    def report(self, name: str, why_not: str | None) -> None:
        """Record a call's outcome: None if it was answered, otherwise the reason.

        Each change is logged once.
        """
        before, self._why[name] = self._why[name], why_not
        if why_not is not None and why_not != before:
            _LOG.warning("no work without the %s", name, extra={"why": why_not})
        elif why_not is None and before not in (None, _NOT_YET):
            _LOG.info("%s answers again", name)

    @property
    def missing(self) -> dict[str, str]:
        """Missing dependencies by name, with reasons."""
        return {name: why for name, why in self._why.items() if why is not None}
