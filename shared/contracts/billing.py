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
"""What this version bills. Lines and bills are read with any name: newer versions may have more."""
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
    """The same rounds on two machines that are paid for all the time: one learns, one acts."""

    learner_instance: str
    actor_instance: str
    wall_s: NonNegativeFloat
    total_usd: NonNegativeFloat


class JobCost(Message):
    """A job's bill so far."""

    job_id: JobId
    settled_usd: NonNegativeFloat
    """What the job has been billed: the sum of all its lines, and of `by_item`."""
    reserved_usd: NonNegativeFloat
    """What is set aside, at its worst, until it is billed; 0 once the bill is final."""
    by_item: dict[LedgerItem | Identifier, NonNegativeFloat]
    lines: tuple[LedgerLine, ...]
    """One page of the ledger, in order."""
    next_cursor: str | None = None
    """Pass as `cursor` to get the next page of lines; None at the end."""
    price_table: str
    projected_wall_s: NonNegativeFloat
    """How long the same rounds would take on AWS."""
    serverful: tuple[ServerfulCost, ...] = ()
    """The same rounds on servers: the paper's, and the job's own learner beside the paper's actor
    machine; those of which the price table has both machines."""
    best_server: ServerfulCost | None = None
    """The same rounds on one server that learns and acts, of the size that costs least, its boot
    included; None where the price table has none."""
    assumptions: tuple[str, ...]
