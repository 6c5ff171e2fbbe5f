"""Detects environment variables that may contain a secret."""

import re

_WORDS = frozenset(
    (
        *("APIKEY", "AUTH", "AUTHORIZATION", "COOKIE", "CREDENTIAL", "CREDENTIALS", "KEY", "KEYS"),
        *("DSN", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PWD", "SECRET"),
        *("SECRETS", "TOKEN", "TOKENS"),
    )
)
_ENDS = (
    *(word for word in _WORDS if len(word) > 3),
    *("CONNECTIONSTRING", "CONNECTION_STRING", "LICENCE", "LICENSE"),
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""The shell's working-folder variables."""
_SECRET_VALUE = re.compile(
    r"""
    ://[^/?\#\s@]*:[^/?\#\s@]+@             # a password in an address
    | https?://[^/?\#\s@]+@                 # a key in the place of a user
    | (?:^|[?&;\s])                         # a part of a query, or of a connection string
      (?:accountkey|sharedaccesskey|sharedaccesssignature|api_?key|access_?token|auth_?token
        |token|secret|password|passwd|pwd)
      =[^&;\s]
    """,
    re.VERBOSE | re.IGNORECASE,
)


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable's name, or credentials in its value, mark it as secret.

    It knows common names and forms. A secret under another name is not detected.

    >>> looks_secret("SIM_API_KEY"), looks_secret("simtoken"), looks_secret("SIM_KEYBOARD")
    (True, True, False)
    >>> looks_secret("HTTPS_PROXY", "http://me:1234@proxy:3128")
    True
    """
    upper = name.upper()
    return (
        (name not in _FOLDERS and not _WORDS.isdisjoint(upper.split("_")))
        or upper.endswith(_ENDS)
        or _SECRET_VALUE.search(value) is not None
    )
