"""A token from a variable or a file: the REST API's, the emulator's. No message ever quotes it."""

from pathlib import Path

from pydantic import SecretStr

TOKEN_HEADER = "X-Nitro-Token"
"""Carries the token where `Authorization` is taken: API Gateway's IAM authoriser wants it."""


class TokenError(ValueError):
    """There is no usable token; the message names the setting and the fix."""


def read_token(
    token: SecretStr | None, path: Path | None, *, name: str = "NITRO_TOKEN"
) -> str | None:
    """Return the token given directly, else the one in the file, else None.

    It is given in the variable `name`; its file in that with `_FILE` behind.

    Raises:
        TokenError: The file cannot be read, or what was given is no token.
    """
    if token is not None:
        return _sendable(token.get_secret_value(), name=name, source=name)
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenError(
            f"{name}_FILE: cannot read the token file {path} ({error.strerror}); "
            f"set {name} or {name}_FILE"
        ) from error
    except UnicodeDecodeError:
        # Not chained: the error quotes what the file holds.
        raise TokenError(
            f"{name}_FILE: the token file {path} is no text; write the token into it"
        ) from None
    return _sendable(text, name=name, source=f"{name}_FILE: the token file {path}")


def token_headers(token: str | None, *, signed: bool = False) -> dict[str, str]:
    """Return the headers that open an API.

    Args:
        token: Its token; None where authentication is off.
        signed: Whether `Authorization` has an AWS signature.
    """
    if token is None:
        return {}
    return {TOKEN_HEADER: token} if signed else {"Authorization": f"Bearer {token}"}


def _sendable(text: str, *, name: str, source: str) -> str:
    """Return the token if a header can carry it."""
    token = text.strip()
    if not token:
        raise TokenError(f"{source} is empty: set {name} or {name}_FILE")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise TokenError(f"{source}: a token is one word of printable ASCII characters")
    return token
