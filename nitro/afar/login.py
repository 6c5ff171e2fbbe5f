"""An API's address and token, stored between commands for this user alone.

The token is sent only to its own address.
"""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_serializer

from nitro.errors import CommandError

_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_AGAIN = "run `nitro login URL` again, or delete it"


class Login(BaseModel):
    """An API and its token."""

    model_config = ConfigDict(frozen=True)

    api_url: str
    token: SecretStr
    sign_for: str | None = None
    """AWS region of request signatures."""

    @field_serializer("token", when_used="json")
    def _written(self, token: SecretStr) -> str:
        return token.get_secret_value()


def login_path() -> Path:
    """Return the path of the stored login."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "nitro" / "login.json"


def read_login() -> Login | None:
    """Return the stored login; None without one.

    Raises:
        CommandError: The file is unreadable, damaged, or readable by others.
    """
    path = login_path()
    try:
        if path.stat().st_mode & 0o077:
            raise CommandError(f"{path} is open to others: {_AGAIN}")
        return Login.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError:
        # Not chained: the cause quotes the file's contents.
        raise CommandError(f"{path} is damaged: {_AGAIN}") from None


def keep_login(login: Login) -> Path:
    """Store a login for this user alone; return the file's path.

    Raises:
        CommandError: The file cannot be written.
    """
    path = login_path()
    staged = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
        staged.unlink(missing_ok=True)
        opened = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(login.model_dump_json())
        staged.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def forget_login() -> bool:
    """Remove the stored login; return whether there was one.

    Raises:
        CommandError: The file cannot be removed.
    """
    path = login_path()
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CommandError(f"{path}: cannot be removed ({error.strerror})") from error
    return True
