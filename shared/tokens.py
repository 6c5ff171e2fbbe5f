"""The bearer token of the REST API, from a variable or a file. No message ever quotes it."""

from pathlib import Path

from pydantic import SecretStr

TOKEN_HEADER = "X-Nitro-Token"
"""Carries the token where `Authorization` is taken: API Gateway's IAM authoriser wants it."""


class TokenError(ValueError):
    """There is no usable token; the message names the setting and the fix."""


def read_token(token: SecretStr | None, path: Path | None) -> str | None:
    """Return the token given directly, else the one in the file, else None.

    Raises:
        TokenError: The file cannot be read, or what was given is no token.
    """
    if token is not None:
        return _sendable(token.get_secret_value(), source="NITRO_TOKEN")
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenError(
            f"NITRO_TOKEN_FILE: cannot read the token file {path} ({error.strerror}); "
            "set NITRO_TOKEN or NITRO_TOKEN_FILE"
        ) from error
    except UnicodeDecodeError:
        # Not chained: the error quotes what the file holds.
        raise TokenError(
            f"NITRO_TOKEN_FILE: the token file {path} is no text; write the token into it"
        ) from None
    return _sendable(text, source=f"NITRO_TOKEN_FILE: the token file {path}")


def _sendable(text: str, *, source: str) -> str:
    """Return the token if a header can carry it."""
    token = text.strip()
    if not token:
        raise TokenError(f"{source} is empty: set NITRO_TOKEN or NITRO_TOKEN_FILE")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise TokenError(f"{source}: a token is one word of printable ASCII characters")
    return token
