"""HTTP clients: direct to this machine, through the environment's proxies to other hosts.

Separate from the package's other modules because it needs httpx, which actors do not have.
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx

_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class HttpSetupError(ValueError):
    """The address or the environment is unusable for a client; names the needed change."""


def http_client(
    url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    auth: httpx.Auth | None = None,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Return a client of one server; nothing is sent yet.

    Args:
        url: The server's base URL; request paths are relative to it.
        timeout_s: Time-out for a connection, and for each part of an answer.
        headers: Sent with every request.
        auth: Signs every request.
        transport: Replaces the client's own connections.

    Raises:
        HttpSetupError: The address is malformed, or an environment variable names an unusable proxy
            or certificate file.
    """
    if not is_address(url):
        raise HttpSetupError(f"{url!r} is no address such as https://host:port")
    try:
        return httpx.Client(
            base_url=url,
            headers=headers,
            auth=auth,
            timeout=timeout_s,
            transport=transport,
            trust_env=not is_loopback(url),
            # Plain HTTP needs no certificates, and loading them dominates the set-up time.
            verify=httpx.create_ssl_context() if httpx.URL(url).scheme == "https" else False,
        )
    except ImportError as error:
        raise HttpSetupError(
            f"{', '.join(_set_of(_PROXIES))} names a SOCKS proxy, which needs the package socksio: "
            "pip install 'httpx[socks]', or unset the variable"
        ) from error
    except OSError as error:
        raise HttpSetupError(
            f"{_set_of(_CERTIFICATES)[0]}: cannot read the certificates "
            f"({error.strerror or error}); correct the variable, or unset it"
        ) from error
    except (ValueError, httpx.InvalidURL):
        # Not quoted: a proxy's address may contain a password.
        raise HttpSetupError(
            f"{', '.join(_set_of(_PROXIES))} is no proxy such as http://host:port; "
            "correct it, or unset it"
        ) from None


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine, so that traffic cannot be intercepted."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(url: str) -> bool:
    """Whether a URL has a host, and a valid port if any."""
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def _set_of(names: tuple[str, ...]) -> list[str]:
    """Return the names that are set, in upper or lower case; all names if none is set."""
    found = [form for name in names for form in (name, name.lower()) if os.environ.get(form)]
    return found or [*names]
