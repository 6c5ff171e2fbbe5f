"""Custom environments from the command line and its settings, and their records.

A job has only its environment's name. Its maker is stored next to the jobs in a private folder, for
later commands.
"""

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nitro.client.errors import JobRefusedError, require_admitted
from nitro.errors import CommandError
from nitro.foreign_output import foreign_code
from nitro.local.module_path import folders_of, module_path
from nitro.settings import STATE_FOLDER, read_settings
from shared.contracts.jobs import Job
from shared.environments.packages import (
    EnvironmentPackageError,
    absolute_name,
    file_name,
    import_environment_packages,
    maker_env_id,
    package_names,
)
from shared.environments.scripts import end_import

_ONLY_HERE = (
    r"\1 is registered in this process, but not where the actors run: they are processes of "
    "their own. Name the module that registers it: --environment-package NAME, or "
    "environment_packages=[NAME]. In a script, register it above `if __name__ == '__main__':`. "
    "With `nitro up`, give the option there. On AWS, the package belongs into the actors' image "
    "(docs/environments.md)"
)
_UNKNOWN = re.compile(r"(env_id:? '[^']*') is no registered environment.*")


def own_packages(
    option: Sequence[str] | None,
    *,
    runs: Sequence[Path] = (),
    known_here: str | None = None,
) -> tuple[str, ...]:
    """Import the selected custom environments; return their module names.

    They come from the option, or else from the runs and from NITRO_ENVIRONMENT_PACKAGES. An import
    error shows at once here; actors would fail only after a wait. Modules in the current folder are
    found.

    Args:
        option: The command line's names.
        runs: Folders of runs.
        known_here: Name of an environment's maker in this process.

    Raises:
        CommandError: A name is malformed, or a package cannot be imported.
    """
    end_import()
    try:
        names = package_names(",".join(map(absolute_name, option or ())))
        if not names:
            kept = (name for run in runs for name in kept_packages(run))
            names = tuple(dict.fromkeys((*kept, *read_settings().environment_packages)))
        names = (*map(absolute_name, names), *([known_here] if known_here else ()))
        if names and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        with foreign_code():
            import_environment_packages(names)
    except (ValueError, EnvironmentPackageError) as error:
        raise CommandError(f"--environment-package: {error}") from error
    return names


def keep_packages(run: Path, names: Sequence[str]) -> None:
    """Store the names of the modules that make a run's environment on this machine.

    Args:
        run: The run's folder, which need not exist yet.
        names: The result of `own_packages`.
    """
    if names:
        path = _kept_path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(",".join(names), encoding="utf-8")


def kept_packages(run: Path) -> tuple[str, ...]:
    """Return the stored names of the modules that make a run's environment."""
    try:
        return package_names(_kept_path(run).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()


def kept_maker(runs_dir: Path, env_id: str) -> str | None:
    """Return the maker of an unregistered environment, from its newest run."""
    kept = sorted(_folder(runs_dir).glob("*.packages"), key=lambda path: path.stat().st_mtime)
    names = (name for path in reversed(kept) for name in kept_packages(_run_of(path)))
    return next((name for name in names if ":" in name and maker_env_id(name) == env_id), None)


def write_module(runs_dir: Path, stem: str, source: str) -> str:
    """Store a module's source next to the jobs; return its name for actors."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    path = _folder(runs_dir) / digest / f"{stem}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return file_name(path)


def _kept_path(run: Path) -> Path:
    absolute = run.absolute()
    return _folder(absolute.parent) / f"{absolute.name}.packages"


def _run_of(path: Path) -> Path:
    return path.parents[2] / path.stem


def _folder(runs_dir: Path) -> Path:
    return runs_dir.absolute() / STATE_FOLDER / "environments"


def require_registered(env_id: str) -> None:
    """Refuse an environment that actors on this machine could not make, before any starts.

    Raises:
        CommandError: The environment is unknown; names similar ones.
    """
    from shared.environments.building import (
        require_registered as require,  # Gymnasium takes a while to load
    )
    from shared.environments.spaces import UnsupportedEnvironment

    try:
        require(env_id)
    except UnsupportedEnvironment as error:
        # As in an API's errors: the field first, then the problem.
        raise CommandError(str(error).replace("env_id ", "env_id: ", 1)) from error


def require_admitted_here(job: Job) -> None:
    """Raise the reason for a job's refusal; add advice if this process knows its environment.

    Raises:
        JobRefusedError: The job failed before actors knew its environment.
    """
    try:
        require_admitted(job)
    except JobRefusedError as error:
        gymnasium = sys.modules.get("gymnasium")
        if gymnasium is None or job.spec.env_id not in gymnasium.registry:
            raise
        text = _UNKNOWN.sub(_ONLY_HERE, str(error))
        raise JobRefusedError(text, exit_code=error.exit_code) from error


def _path_of_modules(names: Sequence[str]) -> str:
    """Return the PYTHONPATH on which another process finds these modules; files need none."""
    modules = (
        name.partition(":")[0] for name in names if ".py:" not in name and not name.endswith(".py")
    )
    return module_path(folders_of(modules))


def actor_variables(option: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of the local system's actors.

    Raises:
        CommandError: As for `own_packages`.
    """
    packages, settings = own_packages(option), read_settings()
    variables = {name: os.environ[name] for name in settings.actor_variables if name in os.environ}
    if packages:
        variables["NITRO_ENVIRONMENT_PACKAGES"] = ",".join(packages)
        # Actors must find the modules imported here, and files in the current folder.
        variables["PYTHONPATH"] = _path_of_modules(packages)
        variables["NITRO_FOLDER"] = str(Path.cwd())
    if settings.step_timeout_s is not None:
        variables["NITRO_STEP_TIMEOUT_S"] = str(settings.step_timeout_s)
    if settings.kept_environments is not None:
        variables["NITRO_KEPT_ENVIRONMENTS"] = str(settings.kept_environments)
    return variables
