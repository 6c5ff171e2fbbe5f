"""One budget for many jobs: what is left of it, and what the next job may have of it.

    committed   caps of jobs that are open, and what all others have cost
    left        budget - committed
    share       left / places that are free

A job is given its share as its own cap, which the scaler enforces round by round. The sum of all
caps and costs never passes the budget, whatever becomes of this process. What a job leaves of its
cap is shared by the next ones. A job that its cap cut short goes on when others have left enough.
"""

import math
from collections.abc import Sequence

from nitro.sweeps.rows import Row


def left_usd(budget_usd: float, rows: Sequence[Row]) -> float:
    """Return what no job has spent nor may spend."""
    return max(0.0, budget_usd - math.fsum(map(_committed_usd, rows)))


def share_usd(budget_usd: float, rows: Sequence[Row], *, places: int) -> float:
    """Return what the next of so many free places may have."""
    return left_usd(budget_usd, rows) / max(1, places)


def next_cap_usd(row: Row, share: float, left: float) -> float | None:
    """Return the cap of a job that begins or goes on with its share; None where too little is left.

    The cap of a job can only rise, so one that goes on needs at least what it had.
    """
    if row.job_id is None or row.cap_usd is None:
        return share if share > 0 else None
    cap = max(row.cap_usd, row.most_usd + share)
    return cap if cap - row.most_usd <= left * (1 + 1e-12) else None


def _committed_usd(row: Row) -> float:
    return row.cap_usd if row.cap_usd is not None and row.status == "open" else row.most_usd
