"""A job with every value resolved, without a running system."""

import json
from collections.abc import Sequence

import typer
from pydantic import ValidationError

from nitro.errors import CommandError
from nitro.foreign_output import foreign_code
from nitro.hints import Place
from nitro.local.own_environments import own_packages
from nitro.spec.advice import advice, gpu_less_cores
from nitro.spec.fit import require_fit
from nitro.spec.spec_file import field_errors, validated
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import resized
from shared.contracts.job_spec import JobSpec
from shared.hyperparameters.presets import resolve


def described(
    spec: JobSpec, *, here: bool, environment_packages: Sequence[str] | None = None
) -> str:
    """Return the whole specification as JSON, with every hyper-parameter resolved.

    The environment is built on this machine to choose the preset for its observations. Advice goes
    to standard error. If only a deployment has the environment, standard error says so, and the
    preset for vectors is shown.

    Args:
        spec: The job.
        here: Whether the job would train on this machine, which must then have the environment.
        environment_packages: Packages of your own environments; None for those of the settings.

    Raises:
        CommandError: The hyper-parameters conflict with the preset, a package cannot be imported,
            or the environment cannot be built and the job would train here.
    """
    spec = spec.resolved()
    full = spec.model_dump(mode="json")
    environment = _environment(spec, environment_packages, here=here)
    if environment is not None:
        full = resized(spec, environment).model_dump(mode="json")
        spec = validated(full)
    images = environment is not None and environment.observation.has_images
    try:
        values = resolve(spec.algorithm, spec.preset, spec.hyperparameters, images=images)
    except ValidationError as error:
        kind = "images" if images else "vectors"
        lines = [
            f"hyperparameters: {wrong.message} (by the preset for {kind})"
            for wrong in field_errors(error)
        ]
        raise CommandError("\n".join(lines)) from error
    full["hyperparameters"] = values.model_dump(mode="json")
    if environment is not None:
        require_fit(spec, environment, here=here)
        cores = gpu_less_cores(environment)
        rounds = spec.stop.max_rounds
        place = Place(environment_packages=environment_packages or ())
        told = advice(spec, environment, values, rounds=rounds, cpu_cores=cores, place=place)
        for line in told:
            typer.echo(line, err=True)
    return json.dumps(full, indent=2)


def _environment(
    spec: JobSpec, environment_packages: Sequence[str] | None, *, here: bool
) -> EnvironmentSpec | None:
    from shared.environments.describing import describe
    from shared.environments.spaces import UnsupportedEnvironment

    own_packages(environment_packages)
    try:
        with foreign_code():
            return describe(spec.environment_ref)
    except UnsupportedEnvironment as error:
        if here:
            raise CommandError(str(error)) from error
        typer.echo(f"hyperparameters are those for vectors: {error}", err=True)
        return None
