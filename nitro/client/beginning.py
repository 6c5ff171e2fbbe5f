"""The job that a command trains: a new one, or an earlier one that continues."""

from dataclasses import asdict, dataclass

from nitro.client.client import NitroClient
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to submit."""

    spec: JobSpec
    idempotency_key: str | None = None

    def begin(self, client: NitroClient) -> Job:
        """Submit the job."""
        return client.submit(self.spec, idempotency_key=self.idempotency_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A job to resume, with its new limits; None keeps a limit."""

    job_id: str
    """Its id, or the name of its run."""
    max_rounds: int | None = None
    max_env_steps: int | None = None
    budget_usd: float | None = None
    max_wall_s: float | None = None
    from_scratch: bool = False
    fresh_schedule: bool = False

    def begin(self, client: NitroClient) -> Job:
        """Resume the job."""
        return client.resume(**asdict(self))
