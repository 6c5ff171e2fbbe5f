"""What the command line and its settings say about environments of one's own."""

from collections.abc import Sequence

from nitro.errors import CommandError
from nitro.foreign_output import foreign_code
from nitro.local.module_path import folders_of, module_path
from nitro.settings import read_settings
from shared.environments.packages import (
    EnvironmentPackageError,
    import_environment_packages,
    package_names,
)


def own_packages(option: Sequence[str] | None) -> tuple[str, ...]:
    """Import the packages of the option, or else of NITRO_ENVIRONMENT_PACKAGES; return their names.

    Imported here and now, because actors that cannot start would have to be waited for.

    Raises:
        CommandError: A name is none, or a package cannot be imported.
    """
    try:
        names = package_names(",".join(option)) if option else read_settings().environment_packages
        with foreign_code():
            import_environment_packages(names)
    except (ValueError, EnvironmentPackageError) as error:
        raise CommandError(f"--environment-package: {error}") from error
    return names


def require_registered(env_id: str) -> None:
    """Refuse an environment that no actor on this machine could make, before any is started.

    Raises:
        CommandError: There is none of that name; names similar ones.
    """
    from shared.environments.building import (
        require_registered as require,  # Gymnasium takes a while to load
    )
    from shared.environments.spaces import UnsupportedEnvironment

    try:
        require(env_id)
    except UnsupportedEnvironment as error:
        # As an API tells it: the field first, and then what is wrong with it.
        raise CommandError(str(error).replace("env_id ", "env_id: ", 1)) from error


def actor_variables(option: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of the local system's actors.

    Raises:
        CommandError: As for `own_packages`.
    """
    packages, step_timeout_s = own_packages(option), read_settings().step_timeout_s
    variables = {}
    if packages:
        variables["NITRO_ENVIRONMENT_PACKAGES"] = ",".join(packages)
        # What was imported here must be found there.
        modules = (name.partition(":")[0] for name in packages)
        variables["PYTHONPATH"] = module_path(folders_of(modules))
    if step_timeout_s is not None:
        variables["NITRO_STEP_TIMEOUT_S"] = str(step_timeout_s)
    return variables
