"""A function: its names, qualifiers and ARNs."""

import re
from dataclasses import dataclass

from starlette.requests import Request

from services.emulator.api.endpoint import invalid_parameter, not_found
from services.emulator.settings import Settings

LATEST = "$LATEST"
PUBLISHED = "1"
"""The one published version; every alias points at it."""

_NAME = re.compile(
    r"""^(?:arn:aws:lambda:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):function:)?
        (?P<name>[A-Za-z0-9_-]+)
        (?::(?P<qualifier>\$LATEST|[A-Za-z0-9_-]+))?$""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a request: the function as called and the version that answers."""

    arn: str
    """Full ARN, with the qualifier when one was given."""
    qualifier: str | None
    version: str


def named_in(path: str) -> str | None:
    """Return the bare function name in an API path; None without one."""
    parts = path.split("/functions/", 1)
    if len(parts) == 1:
        return None
    match = _NAME.fullmatch(parts[1].split("/", 1)[0])
    return None if match is None else match["name"]


class Function:
    """Resolves the names a client may use for the function."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.arn = (
            f"arn:aws:lambda:{settings.region}:{settings.account_id}"
            f":function:{settings.function_name}"
        )
        self._versions = {LATEST: LATEST, PUBLISHED: PUBLISHED}
        self._versions.update(dict.fromkeys(settings.aliases, PUBLISHED))

    def target(self, request: Request) -> Target:
        """Return the target that a request names by name or ARN, with or without a qualifier.

        Raises:
            ServiceError: The name is malformed or not configured, or two qualifiers differ.
        """
        name, qualifier = request.path_params["name"], request.query_params.get("Qualifier")
        match = _NAME.fullmatch(name)
        if match is None:
            raise invalid_parameter(f"FunctionName {name!r} is neither a function name nor an ARN.")
        in_name = match["qualifier"]
        if in_name and qualifier and in_name != qualifier:
            raise invalid_parameter(
                f"The qualifier {in_name!r} derived from the function name does not match the "
                f"specified qualifier {qualifier!r}."
            )
        chosen = in_name or qualifier
        called = f"{self._base_arn(match)}:{chosen}" if chosen else self._base_arn(match)
        version = self._versions.get(chosen or LATEST)
        if version is None or not called.startswith(self.arn + ":") and called != self.arn:
            raise not_found(f"Function not found: {called} (configured: {self._configured()})")
        return Target(arn=called, qualifier=chosen, version=version)

    def _base_arn(self, match: re.Match[str]) -> str:
        region = match["region"] or self.settings.region
        account = match["account"] or self.settings.account_id
        return f"arn:aws:lambda:{region}:{account}:function:{match['name']}"

    def _configured(self) -> str:
        return f"{self.arn} with qualifiers {', '.join(self._versions)}"

    def configuration(self, target: Target) -> dict[str, object]:
        """Return the function's configuration as GetFunctionConfiguration gives it."""
        settings = self.settings
        return {
            "FunctionName": settings.function_name,
            "FunctionArn": target.arn,
            "Version": target.version,
            "PackageType": "Image",
            "Architectures": ["x86_64"],
            "MemorySize": settings.memory_mb,
            "Timeout": max(1, round(settings.timeout_s)),
            "State": "Active",
            "LastUpdateStatus": "Successful",
        }
