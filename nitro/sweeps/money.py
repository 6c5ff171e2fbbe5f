"""One budget for many jobs: the rest, and the next job's share of it.

    committed   caps of jobs that are open, and what all others have cost
    left        budget - committed
    share       left / places that are free

A job gets its share as its own cap, which the scaler enforces round by round. The sum of all caps
and costs never exceeds the budget, even if this process dies. Unused money goes to later jobs. A
job that its cap stopped resumes when others have left enough.
"""

import math
from collections.abc import Sequence

from nitro.sweeps.rows import Row


def left_usd(budget_usd: float, rows: Sequence[Row]) -> float:
    """Return the uncommitted rest of the budget."""
    return max(0.0, budget_usd - math.fsum(map(_committed_usd, rows)))


def share_usd(budget_usd: float, rows: Sequence[Row], *, places: int) -> float:
    """Return the share of the next job, given the number of free places."""
    return left_usd(budget_usd, rows) / max(1, places)


def next_cap_usd(row: Row, share: float, left: float) -> float | None:
    """Return the cap of a job that starts or resumes with its share; None if too little is left.

    A cap can only rise, so a resumed job needs at least its previous cap.
    """
    if row.job_id is None or row.cap_usd is None:
        return share if share > 0 else None
    cap = max(row.cap_usd, row.most_usd + share)
    return cap if cap - row.most_usd <= left * (1 + 1e-12) else None


def _committed_usd(row: Row) -> float:
    return row.cap_usd if row.cap_usd is not None and row.status == "open" else row.most_usd
