"""From options and environment to a client."""

from pathlib import Path

from nitro.afar.login import read_login
from nitro.client.client import NitroClient
from nitro.settings import (
    ADDRESS_FILE,
    STATE_FOLDER,
    CliSettings,
    api_address,
    api_token,
    named_api,
    read_settings,
)


def has_api(api_url: str | None, runs_dir: Path) -> bool:
    """Whether an API is configured, or a local system runs."""
    return bool(api_url or named_api()) or (runs_dir / STATE_FOLDER / ADDRESS_FILE).exists()


def connect(api_url: str | None, runs_dir: Path, *, token: str | None = None) -> NitroClient:
    """Return a client for the chosen API, with this token or the configured one.

    Raises:
        CommandError: Its address, its token or credentials to sign with are missing.
    """
    settings = read_settings()
    url = api_address(api_url, settings, runs_dir)
    opens = token or api_token(url, settings, runs_dir)
    return NitroClient(url, opens, sign_for=signed_for(url, settings))


def signed_for(url: str, settings: CliSettings) -> str | None:
    """Return the AWS region for signed requests to an API; None for unsigned requests."""
    login = read_login()
    kept = None if login is None or login.api_url.rstrip("/") != url else login.sign_for
    return settings.sign_for or kept
