"""Environment variables that look as if they held a secret."""

import re

_WORDS = frozenset(
    (
        *("APIKEY", "AUTH", "AUTHORIZATION", "COOKIE", "CREDENTIAL", "CREDENTIALS", "KEY", "KEYS"),
        *("PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "SECRET", "SECRETS"),
        *("TOKEN", "TOKENS"),
    )
)
_ENDS = tuple(word for word in _WORDS if len(word) > 3)
_PASSWORD_IN_URL = re.compile(r"://[^/\s@]*:[^/\s@]+@")


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable's name, or a password in its value, says that others must not see it.

    >>> looks_secret("SIM_API_KEY"), looks_secret("simtoken"), looks_secret("SIM_KEYBOARD")
    (True, True, False)
    >>> looks_secret("HTTPS_PROXY", "http://me:1234@proxy:3128")
    True
    """
    upper = name.upper()
    return (
        not _WORDS.isdisjoint(upper.split("_"))
        or upper.endswith(_ENDS)
        or _PASSWORD_IN_URL.search(value) is not None
    )
