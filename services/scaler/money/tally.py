"""Sums of a job's ledger: read once, then brought up to date by the lines written since.

A ledger only grows, and a job that is followed is shown twice a second: whoever added all of it up
each time would read ten megabytes for one more line. The sums are kept in memory. No older or newer
version of Nitro, and no round that is made again, can put them out of step with the ledger.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.scaler.store.base import Store
from shared.contracts.billing import LedgerItem

_MAX_JOBS = 64
"""Jobs whose sums are kept, those asked for last; a job of 1,000 rounds takes 100 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a job has been billed, in dollars."""

    num_lines: int
    by_round: Mapping[int, float]
    by_item: Mapping[LedgerItem, float]


@dataclass(slots=True)
class _Tally:
    lock: threading.Lock = field(default_factory=threading.Lock)
    num_lines: int = 0
    by_round: dict[int, float] = field(default_factory=dict)
    by_item: dict[LedgerItem, float] = field(default_factory=dict)


class LedgerTally:
    """Sums of the ledgers of the jobs that are looked at. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()

    def of(self, job_id: str) -> Sums:
        """Return the sums of a job's ledger as it is now."""
        with self._lock:
            tally = self._tallies.setdefault(job_id, _Tally())
            self._tallies.move_to_end(job_id)
            if len(self._tallies) > _MAX_JOBS:
                self._tallies.popitem(last=False)
        with tally.lock:
            for line in self._store.lines(job_id, skip=tally.num_lines):
                tally.num_lines += 1
                usd = line.amount_usd
                tally.by_round[line.round] = tally.by_round.get(line.round, 0.0) + usd
                tally.by_item[line.item] = tally.by_item.get(line.item, 0.0) + usd
            return Sums(
                num_lines=tally.num_lines,
                by_round=dict(tally.by_round),
                by_item=dict(tally.by_item),
            )
