"""The system itself: the viewer, its load and its parts."""

from typing import Literal

from shared.contracts.jobs import JobStatus
from shared.contracts.message import Count, Message, NonNegativeFloat, Number

Role = Literal["operator", "viewer"]
"""`operator` may do everything, `viewer` is read-only."""
Clock = Literal["wall", "projected"]
"""Basis of bills: wall time, or projected time on AWS."""


class Session(Message):
    """The role of a token."""

    role: Role
    auth: Literal["token", "disabled"]
    version: str
    """Nitro's version; `unknown` without an installed package."""
    clock: Clock = "wall"
    """Basis of bills."""


class ConcurrencyView(Message):
    """Invocations at a time."""

    limit: Count | None
    """The account's limit, as last read; None while unknown."""
    reserved: Count | None
    in_flight: Count


class WarmView(Message):
    """Environments that are kept warm."""

    ready: Count
    """Provisioned ones that are ready."""
    most: Count
    """Upper limit of provisioned environments; 0: none."""
    pinged: bool
    """Whether idle environments are pinged, for jobs that use pings."""


class CacheView(Message):
    """The trajectory cache."""

    used_mb: NonNegativeFloat
    most_mb: NonNegativeFloat
    version: str


class FunctionView(Message):
    """The actor function."""

    name: str
    memory_mb: Count
    timeout_s: NonNegativeFloat


class ProcessView(Message):
    """One kind of process of a system on one machine."""

    name: str
    """Of the program, such as `services.learner`."""
    count: Count
    cpu_cores: NonNegativeFloat | None
    """Cores in use since the previous measurement; None at the first."""
    memory_mb: NonNegativeFloat
    """Resident memory; shared pages count in each process."""


class SystemView(Message):
    """All of it."""

    version: str
    role: Role
    live: bool = True
    """Whether a system runs. False for a view over run folders, which has only versions and jobs.
    """
    started_at: Number
    """When the scaler was started."""
    now: Number
    """The scaler's clock."""
    problems: dict[str, str]
    """Degraded parts, by name."""
    concurrency: ConcurrencyView
    warm: WarmView
    cache: CacheView | None
    """None if it does not answer."""
    function: FunctionView
    jobs: dict[JobStatus, Count]
    """Number of jobs by state; ended jobs were counted up to 30 s ago."""
    learner_instance: str
    price_table: str
    clock: Clock
    artifacts: str
    """Location of runs."""
    processes: tuple[ProcessView, ...] = ()
    """Processes of a system on one machine; empty elsewhere."""
