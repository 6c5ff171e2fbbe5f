"""Whether the learner can work: what it needs answered its last call."""

import logging
from collections.abc import Iterable

_LOG = logging.getLogger(__name__)
_NOT_YET = "not asked yet"


class Readiness:
    """What the learner needs, and why it does not have it.

    Threads may report and look at any time: the names stay, each is replaced as a whole.
    """

    def __init__(self, needed: Iterable[str]) -> None:
        """Begin with nothing that has answered yet."""
        self._why: dict[str, str | None] = dict.fromkeys(needed, _NOT_YET)

    def report(self, name: str, why_not: str | None) -> None:
        """Take what became of a call: None if it was answered, else the reason.

        The log has each change once, however often it is reported.
        """
        before, self._why[name] = self._why[name], why_not
        if why_not is not None and why_not != before:
            _LOG.warning("no work without the %s", name, extra={"why": why_not})
        elif why_not is None and before not in (None, _NOT_YET):
            _LOG.info("%s answers again", name)

    @property
    def missing(self) -> dict[str, str]:
        """What is not there, by name, with the reason."""
        return {name: why for name, why in self._why.items() if why is not None}
