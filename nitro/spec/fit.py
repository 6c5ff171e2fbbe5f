"""Whether a job can learn its environment, before it is submitted."""

from nitro.errors import CommandError
from services.scaler.jobs.fit import fit_errors
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig


def require_fit(spec: JobSpec, environment: EnvironmentSpec) -> None:
    """Refuse a job that the scaler would refuse because of its environment.

    Raises:
        CommandError: One line for each wrong field, as in the scaler's refusal.
    """
    errors = fit_errors(spec, environment, timeout_s=float(NitroConfig().actor_timeout_s))
    if errors:
        raise CommandError("\n".join(f"{error.field}: {error.message}" for error in errors))
