"""The job that a command trains: a new one, or an earlier one that continues."""

from dataclasses import asdict, dataclass

from nitro.client.client import NitroClient
from nitro.spec.total_steps import rounds_for
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
    """Total steps; of a job that rounds end, they are converted to rounds."""
    budget_usd: float | None = None
    max_wall_s: float | None = None
    from_scratch: bool = False
    fresh_schedule: bool = False

    def begin(self, client: NitroClient) -> Job:
        """Resume the job.

        Raises:
            CommandError: The steps of its rounds vary, so steps cannot be converted to rounds.
        """
        asked = asdict(self)
        if self.max_env_steps is not None and self.max_rounds is None:
            spec = client.get(self.job_id).spec
            if spec.stop.max_env_steps is None:
                rounds = rounds_for(spec, self.max_env_steps)
                asked |= {"max_rounds": rounds, "max_env_steps": None}
        return client.resume(**asked)
