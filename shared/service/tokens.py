"""The token of the REST API or the emulator, from a variable or a file. No message quotes it."""

from pathlib import Path

from pydantic import SecretStr

TOKEN_HEADER = "X-Nitro-Token"
"""Header for the token if API Gateway's IAM authoriser occupies `Authorization`."""


class TokenError(ValueError):
    """The token is missing or unusable; the message names the setting and the fix."""


def read_token(
    token: SecretStr | None, path: Path | None, *, name: str = "NITRO_TOKEN"
) -> str | None:
    """Return the direct token, or else the file's; None without both.

    The variable `name` has the token; the variable with the suffix `_FILE` names its file.

    Raises:
        TokenError: The file cannot be read, or the text is not a token.
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
        # Not chained: the error quotes the file's contents.
        raise TokenError(
            f"{name}_FILE: the token file {path} is no text; write the token into it"
        ) from None
    return _sendable(text, name=name, source=f"{name}_FILE: the token file {path}")


def token_headers(token: str | None, *, signed: bool = False) -> dict[str, str]:
    """Return the authentication headers of an API.

    Args:
        token: The token; None if authentication is off.
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
