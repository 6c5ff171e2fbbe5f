"""The actor's settings: the only place where it reads environment variables."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat

from functions.actor.watchdog import STEP_TIMEOUT_S
from functions.lambda_settings import LambdaSettings
from shared.environments.packages import PackageNames


class Settings(LambdaSettings):
    """Read once, when an execution environment starts."""

    environment_packages: PackageNames = ()
    """The user's Python packages that register environments, imported once at start."""
    folder: Path | None = None
    """Working folder of environments; unset: the one that the process was started in."""
    step_timeout_s: Annotated[FiniteFloat, Field(gt=0)] = STEP_TIMEOUT_S
    """Longest wait for one step or reset of an environment; the function's own time-out, which is
    the last to act, should be longer."""
    kept_environments: Annotated[int, Field(ge=1, le=64)] = 1
    """Environments that a process keeps so that their episodes need no repeat. Each takes the
    memory of a simulator.
    """
    runtime_api: Annotated[str, Field(validation_alias="AWS_LAMBDA_RUNTIME_API")] = ""
    """Set by Lambda: where invocations come from and answers go, host and port."""
