"""A job with every value resolved, without a system that could train it."""

import json
from collections.abc import Sequence

import typer
from pydantic import ValidationError

from nitro.errors import CommandError
from nitro.own_environments import own_packages
from nitro.spec_file import field_errors
from shared.hyperparameters import IMAGE_PRESETS, resolve
from shared.job_spec import JobSpec


def described(spec: JobSpec, *, environment_packages: Sequence[str] | None = None) -> str:
    """Return the whole specification as JSON, with every hyper-parameter resolved.

    Where a preset is another one for images, the environment is made on this machine to see which
    it is; where that cannot be, standard error says so and the one for vectors is shown.

    Args:
        spec: What would be submitted.
        environment_packages: Of environments of one's own; None for those of the settings.

    Raises:
        CommandError: The hyper-parameters do not go together with the preset, or a package cannot
            be imported.
    """
    full = spec.model_dump(mode="json")
    images = (spec.algorithm, spec.preset) in IMAGE_PRESETS and _shows_images(
        spec, environment_packages
    )
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
    return json.dumps(full, indent=2)


def _shows_images(spec: JobSpec, environment_packages: Sequence[str] | None) -> bool:
    from shared.envs import describe
    from shared.spaces import UnsupportedEnvironment

    own_packages(environment_packages)
    try:
        return describe(spec.environment_ref).observation.is_image
    except UnsupportedEnvironment as error:
        typer.echo(f"hyperparameters are those for vectors: {error}", err=True)
        return False
