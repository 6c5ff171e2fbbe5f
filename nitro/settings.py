"""Settings that the command line reads from the environment."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
from pydantic import BeforeValidator, Field, FiniteFloat, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from nitro.afar.login import read_login
from nitro.errors import CommandError
from nitro.hints import Place
from shared.environments.packages import PackageNames
from shared.service.http_client import is_loopback
from shared.service.tokens import TokenError, read_token

STATE_FOLDER = ".nitro"
"""Folder inside the runs folder where the local system keeps its own files."""
TOKEN_FILE = "token"
ADDRESS_FILE = "api_url"


class CliSettings(BaseSettings):
    """Variables `NITRO_<FIELD>`; options on the command line win over them."""

    model_config = SettingsConfigDict(
        env_prefix="NITRO_", frozen=True, use_attribute_docstrings=True, extra="ignore"
    )

    api_url: str | None = None
    """REST API to talk to; none means the local system."""
    token: SecretStr | None = None
    """Bearer token for the API; wins over `token_file`."""
    token_file: Path | None = None
    """File that holds the token."""
    sign_for: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    """AWS region that requests are signed for, with the AWS credentials at hand, where the API asks
    for an IAM signature as well (`endpoint: iam`)."""
    cache_url: SecretStr | None = None
    """Redis of the local system, in place of the embedded one: its URL may hold a password."""
    environment_packages: PackageNames = ()
    """Python packages of one's own that register environments, for the local system."""
    actor_variables: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(
            lambda said: said.replace(",", " ").split() if isinstance(said, str) else said
        ),
    ] = ()
    """Names of variables that actors on this machine get although they look like secrets."""
    step_timeout_s: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Longest step or reset of an environment in the local system; unset: the actors' own."""
    kept_environments: Annotated[int, Field(ge=1, le=64)] | None = None
    """Environments that each process of the local system keeps to go on with their episodes, where
    those would have to be repeated otherwise. Each takes the memory of a simulator. Unset: 6."""

    @property
    def cache_address(self) -> str | None:
        """The `cache_url` in the open."""
        return None if self.cache_url is None else self.cache_url.get_secret_value()


def read_settings() -> CliSettings:
    """Read the environment.

    Raises:
        CommandError: A variable is wrong; names it.
    """
    try:
        return CliSettings()
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        name = "_".join(str(part) for part in details["loc"]).upper()
        raise CommandError(f"NITRO_{name}: {details['msg']}") from error


def named_api() -> str | None:
    """Return the API that is named without an option: by the variable, or by `nitro login`.

    Raises:
        CommandError: A variable or the login is wrong.
    """
    login = read_login()
    return read_settings().api_url or (None if login is None else login.api_url)


def api_address(option: str | None, settings: CliSettings, runs_dir: Path) -> str:
    """Return the API's base URL: the option, the variable, the local system, or the login.

    Raises:
        CommandError: None of them is there, or the URL is not http(s).
    """
    url = option or settings.api_url
    if url is None:
        try:
            url = (runs_dir / STATE_FOLDER / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        except OSError:
            url = named_api()
        if url is None:
            raise CommandError(
                f"no local system is up on {runs_dir}: start one with "
                f"`{Place(runs_dir=runs_dir).command('up')}`, or name another API with --api-url, "
                "NITRO_API_URL or `nitro login URL`"
            )
    return checked_address(url)


def checked_address(url: str) -> str:
    """Return an API's base URL as it is used.

    Raises:
        CommandError: It is not http(s), names no host, or holds more than an address.
    """
    if "#" in url or "?" in url or "@" in url:
        # Not quoted: it may be the dashboard's link, which holds the token.
        raise CommandError(
            "--api-url: give the address alone, such as https://host, without what follows a # or "
            "a ?, and without a user or password"
        )
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"--api-url: must start with http:// or https://, got {url!r}")
    if not _names_a_host(url):
        raise CommandError(f"--api-url: must read https://host or https://host:port, got {url!r}")
    return url.rstrip("/")


def api_token(url: str, settings: CliSettings, runs_dir: Path) -> str:
    """Return the bearer token: NITRO_TOKEN, NITRO_TOKEN_FILE, the login's, or the local system's.

    The local system's token is only ever offered to this machine.

    Raises:
        CommandError: There is none, its file cannot be read, or it cannot be sent.
    """
    login = read_login()
    given = settings.token is not None or settings.token_file is not None
    if login is not None and not given and login.api_url.rstrip("/") == url:
        return login.token.get_secret_value()
    path = settings.token_file
    if path is None and is_loopback(url):
        path = runs_dir / STATE_FOLDER / TOKEN_FILE
    try:
        token = read_token(settings.token, path)
    except TokenError as error:
        raise CommandError(str(error)) from error
    if token is None:
        raise CommandError(
            f"no token for {url}: set NITRO_TOKEN or NITRO_TOKEN_FILE, or "
            f"`{Place().command('login', url)}`"
        )
    return token


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # As a resolver is asked for it, and as it is sent: neither takes all that the other does.
        host = (parts.hostname or "").encode("idna") and httpx.URL(url).host
        return bool(host) and parts.port != 0 and url.isprintable() and " " not in url
    except (ValueError, httpx.InvalidURL):
        return False
