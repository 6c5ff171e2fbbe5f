"""From options and environment to a client."""

from pathlib import Path

from nitro.client.client import NitroClient
from nitro.settings import ADDRESS_FILE, STATE_FOLDER, api_address, api_token, read_settings


def has_api(api_url: str | None, runs_dir: Path) -> bool:
    """Whether an API is named, or a local system up."""
    named = api_url or read_settings().api_url
    return bool(named) or (runs_dir / STATE_FOLDER / ADDRESS_FILE).exists()


def connect(api_url: str | None, runs_dir: Path, *, token: str | None = None) -> NitroClient:
    """Return a client for the API that is meant, with this token or that of the settings.

    Raises:
        CommandError: There is no address or no token for it, or nothing to sign with.
    """
    settings = read_settings()
    url = api_address(api_url, settings, runs_dir)
    opens = token or api_token(url, settings, runs_dir)
    return NitroClient(url, opens, sign_for=settings.sign_for)
