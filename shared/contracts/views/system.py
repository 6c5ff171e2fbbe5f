"""The system itself: who looks at it, how busy it is, what it is made of."""

from typing import Literal

from shared.contracts.jobs import JobStatus
from shared.contracts.message import Count, Message, NonNegativeFloat, Number

Role = Literal["operator", "viewer"]
"""`operator` may do everything, `viewer` may look."""
Clock = Literal["wall", "projected"]
"""Which time is billed: the time that passes, or what the same rounds would take on AWS."""


class Session(Message):
    """Whom a token belongs to."""

    role: Role
    auth: Literal["token", "disabled"]
    version: str
    """Of Nitro; `unknown` where it is not installed as a package."""
    clock: Clock = "wall"
    """Which time is billed."""


class ConcurrencyView(Message):
    """Invocations at a time."""

    limit: Count | None
    """The account's, as last seen; None while unknown."""
    reserved: Count | None
    in_flight: Count


class WarmView(Message):
    """Environments that are kept warm."""

    ready: Count
    """Provisioned ones that are ready."""
    most: Count
    """Most that are ever provisioned; 0: none."""
    pinged: bool
    """Whether idle ones are pinged, for jobs that want it."""


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
    """Cores in use since the last look; None at the first one."""
    memory_mb: NonNegativeFloat
    """Resident memory. Pages that several processes share count for each of them."""


class SystemView(Message):
    """All of it."""

    version: str
    role: Role
    live: bool = True
    """Whether a system is behind it. False where only folders of runs are shown: then nothing is
    known of what is in use, and nothing of what follows is asked for but versions and jobs."""
    started_at: Number
    """When the scaler was started."""
    now: Number
    """The scaler's clock."""
    problems: dict[str, str]
    """What is not as it should be, by name."""
    concurrency: ConcurrencyView
    warm: WarmView
    cache: CacheView | None
    """None where it does not answer."""
    function: FunctionView
    jobs: dict[JobStatus, Count]
    """How many jobs are in each state; those that have ended were counted up to 30 s ago."""
    learner_instance: str
    price_table: str
    clock: Clock
    artifacts: str
    """Where runs are kept."""
    processes: tuple[ProcessView, ...] = ()
    """Of a system on one machine; empty elsewhere."""
