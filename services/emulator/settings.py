"""The emulator's settings, read from its environment once at start."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.emulator.faults import FaultSettings
from shared.service.cores import usable_cores
from shared.service.secret_names import looks_secret

PREFIX = "NITRO_EMULATOR_"

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HANDLER = r"^[^.\s]\S*\.[^.\s]+$"
_Port = Annotated[int, Field(ge=0, le=65535)]

_RESERVED = frozenset(
    {
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_LAMBDA_RUNTIME_API",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        "AWS_LAMBDA_INITIALIZATION_TYPE",
        "AWS_LAMBDA_LOG_GROUP_NAME",
        "AWS_LAMBDA_LOG_STREAM_NAME",
        "LAMBDA_TASK_ROOT",
        "_HANDLER",
    }
)
_INHERITED = frozenset({"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV"})
_OURS = ("AWS_", "NITRO_")
_THREADS = "_NUM_THREADS"
_INHERITED_PREFIXES = ("PYTHON", "LC_", "LD_LIBRARY_", "DYLD_", "OPENBLAS_", "NPY_")
"""The last two choose NumPy's kernels: with others an actor's results differ in their last bit."""


class SecondFunction(BaseModel):
    """Another function beside the first, with environments and faults of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: _Name
    """Its name; region, account, aliases and environment variables are the first function's."""
    handler: str = Field(pattern=_HANDLER)
    """Handler as Lambda spells it."""
    memory_mb: int = Field(default=1769, ge=128, le=10240)
    """Configured and billed memory size; not enforced."""
    timeout_s: float = Field(default=15.0, gt=0, le=900)
    """Time limit of an invocation."""
    processes: int = Field(default_factory=usable_cores, ge=1, le=1024)
    """Environments in mode `processes`, started on demand."""
    runtime_port: _Port = 0
    """Port of its Runtime API in mode `external`."""


class Settings(BaseSettings):
    """Variables `NITRO_EMULATOR_<FIELD>`; single faults as `NITRO_EMULATOR_FAULTS__<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    host: str = "127.0.0.1"
    """Address of the Invoke API."""
    port: _Port = 9000
    """Port of the Invoke API; 0 lets the system choose (see `ports_file`)."""
    runtime_host: str = "127.0.0.1"
    """Address of the Runtime API; 0.0.0.0 if containers connect to it."""
    runtime_port: _Port = 0
    """Port of the Runtime API in mode `external`; 0 lets the system choose. Unused in mode
    `processes`, where the system chooses a loopback port for every environment."""
    token: SecretStr | None = None
    """Token of the Invoke API: letters, digits, `-` and `_`, at least 16."""
    token_file: Path | None = None
    """File that holds the token instead; read once at start."""
    auth: Literal["token", "disabled"] = "token"
    """`disabled` admits everyone who reaches the port."""
    hosts: tuple[str, ...] = ()
    """Names by which clients reach the emulator, as JSON list; those of loopback, `host` and
    `runtime_host` always count."""
    journal: Path | None = None
    """Log file of synchronous invocations and their outcomes, for tests."""
    ports_file: Path | None = None
    """File to write `{"port": …, "runtime_port": …}` to once both ports listen."""

    function_name: _Name = "nitro-actor"
    """Name of the function."""
    handler: str = Field(default="functions.actor.handler.handler", pattern=_HANDLER)
    """Handler as Lambda spells it: module path, dot, function name."""
    aliases: tuple[_Name, ...] = ("live",)
    """Aliases of version 1, as JSON list; any other qualifier but $LATEST and 1 is unknown."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    """Region in ARNs."""
    account_id: str = Field(default="123456789012", pattern=r"^\d{12}$")
    """Account in ARNs."""
    memory_mb: int = Field(default=1024, ge=128, le=10240)
    """Configured and billed memory size of the function; not enforced."""
    timeout_s: float = Field(default=60.0, gt=0, le=900)
    """Time limit of an invocation, from its start on an environment."""
    init_timeout_s: float = Field(default=60.0, gt=0)
    """Time limit of an environment from its start to its first poll."""
    idle_s: float | None = Field(default=None, gt=0)
    """Idle time after which an environment is ended, as on Lambda after some minutes, except for
    provisioned concurrency; unset: never."""
    concurrency_limit: int = Field(default=1000, ge=1)
    """Most invocations in flight (queued or running); more are throttled."""

    mode: Literal["processes", "external"] = "processes"
    """`processes`: the emulator starts environments; `external`: containers connect to it."""
    processes: int = Field(default_factory=usable_cores, ge=1, le=1024)
    """Number of environments in mode `processes`, and so of concurrently running invocations."""
    affinity_fields: tuple[str, ...] = ()
    """Fields of an event, as JSON list. Events with equal values run on the same environment, if
    that costs no time."""
    eager: bool = False
    """Start environments at once, in place of on demand, and be ready when they are."""
    eager_processes: Annotated[int, Field(ge=1)] | None = None
    """Number of environments to start if `eager`; unset: all."""
    task_root: Path = Path()
    """Working folder of environments; the handler's module is looked up here first."""
    variables: dict[str, str] = Field(default_factory=dict, repr=False)
    """Environment variables of the function, as a JSON object."""
    inherit: Literal["python", "user"] = "python"
    """The emulator's own variables that environments also get. `python`: variables with which
    Python finds itself and its modules. `user`: all except secrets, Nitro's and AWS's."""

    second: SecondFunction | None = None
    """Another function, as a JSON object or as `NITRO_EMULATOR_SECOND__<FIELD>`."""
    log_folder: Path | None = None
    """Folder for one log file per environment slot; unset: the emulator logs their output."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Level of the emulator's own log on standard error."""
    faults: FaultSettings = FaultSettings()
    """Initial faults."""

    @field_validator("task_root")
    @classmethod
    def _folder_exists(cls, value: Path) -> Path:
        if not value.is_dir():
            raise ValueError(f"{value} is not a folder: name the one the handler lives in")
        return value.resolve()

    @field_validator("ports_file", "journal")
    @classmethod
    def _in_a_folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.parent.is_dir():
            raise ValueError(f"{value.parent} is not a folder: create it or name another")
        return value

    @field_validator("variables")
    @classmethod
    def _can_be_set(cls, value: dict[str, str]) -> dict[str, str]:
        impossible = [name for name in value if not _VARIABLE.fullmatch(name)]
        impossible += [name for name, text in value.items() if "\0" in text]
        if impossible:
            raise ValueError(f"{impossible}: letters, digits and _ in a name, no NUL in a value")
        reserved = sorted(_RESERVED & value.keys())
        if reserved:
            raise ValueError(f"{', '.join(reserved)}: set by Lambda itself, drop it")
        return value

    def of_second(self) -> "Settings | None":
        """Return the second function's settings; None without one."""
        second = self.second
        if second is None:
            return None
        return self.model_copy(
            update={
                "function_name": second.name,
                "handler": second.handler,
                "memory_mb": second.memory_mb,
                "timeout_s": second.timeout_s,
                "processes": second.processes,
                "runtime_port": second.runtime_port,
                "eager": False,
                "faults": FaultSettings(),
                "journal": None,
                "second": None,
            }
        )

    def _inherits(self, name: str, value: str) -> bool:
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES):
            return True
        if self.inherit == "python" or name.startswith(_OURS) or name.endswith(_THREADS):
            return False
        return not looks_secret(name, value)

    @property
    def known_hosts(self) -> frozenset[str]:
        """Names and addresses that a request's `Host` may have."""
        own = (self.host, self.runtime_host, *self.hosts)
        return _LOOPBACK | {f"[{name}]" if ":" in name else name.lower() for name in own}

    def environment_variables(
        self, *, runtime_api: str, log_stream: str, ahead: bool = False
    ) -> Mapping[str, str]:
        """Return all variables of an environment: Lambda's, then the configured ones.

        As on Lambda, it has none of the emulator's own variables except those of `inherit`. The
        environment polls `runtime_api` (host:port); `log_stream` is its name in logs. A variable
        tells an environment that it is started `ahead` of any invocation.
        """
        inherited = {
            name: value for name, value in os.environ.items() if self._inherits(name, value)
        }
        return {
            **inherited,
            # An environment has one core: several BLAS threads would compete for it.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            **self.variables,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "AWS_LAMBDA_FUNCTION_NAME": self.function_name,
            "AWS_LAMBDA_FUNCTION_VERSION": "1" if self.aliases else "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": ("provisioned-concurrency" if ahead else "on-demand"),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.function_name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "_HANDLER": self.handler,
        }
