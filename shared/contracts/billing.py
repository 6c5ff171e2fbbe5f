"""The bill of a job: one line per item of each round."""

from typing import Literal

from shared.contracts.message import Count, Identifier, JobId, Message, NonNegativeFloat

LedgerItem = Literal[
    "learner",
    "lambda_duration",
    "lambda_requests",
    "provisioned_concurrency",
    "pings",
    "gradient_duration",
    "gradient_requests",
    "cache",
    "scaler",
]
"""The items of this version. Reading accepts any name, because newer versions may have more."""
BillingUnit = Literal["second", "GB-second", "request"]


class LedgerLine(Message):
    """One item of one round's bill: `amount_usd = quantity * unit_price_usd`."""

    round: Count
    attempt: Count
    item: LedgerItem | Identifier
    quantity: NonNegativeFloat
    unit: BillingUnit | Identifier
    unit_price_usd: NonNegativeFloat
    amount_usd: NonNegativeFloat


class ServerfulCost(Message):
    """The same rounds on two always-on machines: one learns, one acts."""

    learner_instance: str
    actor_instance: str
    wall_s: NonNegativeFloat
    total_usd: NonNegativeFloat


class JobCost(Message):
    """A job's bill so far."""

    job_id: JobId
    settled_usd: NonNegativeFloat
    """The job's bill: the sum of all its lines, and of `by_item`."""
    reserved_usd: NonNegativeFloat
    """Money reserved at the worst case until it is billed; 0 when the bill is final."""
    by_item: dict[LedgerItem | Identifier, NonNegativeFloat]
    lines: tuple[LedgerLine, ...]
    """One page of the ledger, in order."""
    next_cursor: str | None = None
    """Pass as `cursor` to get the next page of lines; None at the end."""
    price_table: str
    projected_wall_s: NonNegativeFloat
    """Duration of the same rounds on AWS."""
    serverful: tuple[ServerfulCost, ...] = ()
    """The same rounds on servers: the paper's, and the job's learner with the paper's actor
    machine, if the price table has both machines.
    """
    best_server: ServerfulCost | None = None
    """The same rounds on the cheapest single server that learns and acts, including its boot; None
    if the price table has no server.
    """
    assumptions: tuple[str, ...]
