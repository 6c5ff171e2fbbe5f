"""The job that a command trains: a new one, or an earlier one that continues."""

from dataclasses import asdict, dataclass

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.spec.total_steps import planned_steps, rounds_for
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
    """Total steps; of a job limited by rounds, they are converted to rounds."""
    budget_usd: float | None = None
    max_wall_s: float | None = None
    from_scratch: bool = False
    fresh_schedule: bool = False

    def begin(self, client: NitroClient) -> Job:
        """Resume the job.

        Raises:
            CommandError: Steps of a job limited by rounds are fewer than it has, are given with
                rounds, or cannot be converted because the steps of its rounds vary.
        """
        asked = asdict(self)
        if self.max_env_steps is not None:
            spec = client.get(self.job_id).spec
            if spec.stop.max_env_steps is None:
                rounds = self._rounds(spec, self.max_env_steps)
                asked |= {"max_rounds": rounds, "max_env_steps": None}
        return client.resume(**asked)

    def _rounds(self, spec: JobSpec, total_steps: int) -> int:
        """Return the rounds of a job limited by rounds that has so many steps."""
        if self.max_rounds is not None:
            raise CommandError("--total-steps: give it or --rounds, not both")
        rounds, steps = rounds_for(spec, total_steps), planned_steps(spec)
        if steps is not None and total_steps < steps:
            raise CommandError(
                f"--total-steps: {total_steps:,} is below the job's {steps:,} steps; it can only "
                "rise"
            )
        return rounds
