"""Whether a job can learn its environment, before it is submitted."""

import math

from nitro.errors import CommandError
from services.scaler.jobs.fit import fit_errors
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig


def require_fit(spec: JobSpec, environment: EnvironmentSpec, *, here: bool) -> None:
    """Refuse a job that the scaler would refuse because of its environment.

    Args:
        spec: The job, with its presets resolved.
        environment: As described on this machine.
        here: Whether it would train on this machine; an API's time limit of actors is not known.

    Raises:
        CommandError: One line for each wrong field, as in the scaler's refusal.
    """
    timeout_s = float(NitroConfig().actor_timeout_s) if here else math.inf
    errors = fit_errors(spec, environment, timeout_s=timeout_s)
    if errors:
        raise CommandError("\n".join(f"{error.field}: {error.message}" for error in errors))
