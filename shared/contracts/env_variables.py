"""The variables that a job sets for its simulator."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from shared.contracts.message import READ_BACK
from shared.service.secret_names import looks_secret

_OTHERS = (
    *("AWS_", "BASH_", "DYLD_", "GIT_", "JAVA_", "LAMBDA_", "LD_", "LUA_", "NITRO_", "NODE_"),
    *("OPENSSL_", "PERL5", "PYTHON", "_X_AMZN_"),
)
_OTHER_NAMES = frozenset(
    (
        *(
            "CLASSPATH",
            "DOTNET_STARTUP_HOOKS",
            "ENV",
            "GCONV_PATH",
            "GLIBC_TUNABLES",
            "HOME",
            "IFS",
        ),
        *("JDK_JAVA_OPTIONS", "LOCPATH", "MUJOCO_PLUGIN_DIR", "PATH", "PERLLIB", "QT_PLUGIN_PATH"),
        *("RUBYLIB", "RUBYOPT", "SHELL", "TMPDIR", "_HANDLER", "_JAVA_OPTIONS"),
    )
)
"""Variables by which the system, Lambda or a common language finds code to load."""
_ROUTES = frozenset(
    (
        *("ALL_PROXY", "CURL_CA_BUNDLE", "FTP_PROXY", "HOSTALIASES", "HTTPS_PROXY", "HTTP_PROXY"),
        *("NO_PROXY", "REQUESTS_CA_BUNDLE", "SSLKEYLOGFILE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    )
)
"""Variables that control the route of requests and trusted servers, in upper or lower case."""
_PLAIN = re.compile(r"[^/\\:]*")
_PLACE = "set it where the actors run (docs/environments.md, Variables)"


def _require_own_variables(variables: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    # A job's variables reach simulators and their child processes. These known names would let a
    # job choose the code or the routes of common programs. Other programs may read more.
    if info.context == READ_BACK:
        return variables
    for name, value in variables.items():
        upper = name.upper()
        if upper.startswith(_OTHERS) or name in _OTHER_NAMES or upper in _ROUTES:
            raise ValueError(f"{name} belongs to the system, and a job cannot set it")
        if looks_secret(name, value):
            raise ValueError(
                f"{name} looks like a secret, and every reader of the job could see it: {_PLACE}"
            )
        if not _PLAIN.fullmatch(value):
            raise ValueError(f"{name} must not be a path, a URL or an import path: {_PLACE}")
    return variables


EnvVariables = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")],
    ],
    Field(max_length=16),
    AfterValidator(_require_own_variables),
]
"""Names and values: few and short, because they travel with every task. No secrets."""
