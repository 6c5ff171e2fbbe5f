"""The variables that a job sets for its simulator."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from shared.service.secret_names import looks_secret

_OTHERS = ("AWS_", "BASH_", "DYLD_", "GIT_", "JAVA_", "LD_", "NITRO_", "NODE_", "PERL5", "PYTHON")
_OTHER_NAMES = frozenset({"ENV", "HOME", "IFS", "PATH", "SHELL", "TMPDIR"})
_PLAIN = re.compile(r"[^/\\:]*")
_PLACE = "set it where the actors run (docs/environments.md, Variables)"


def _require_own_variables(variables: dict[str, str]) -> dict[str, str]:
    # They reach simulators, and the processes that those start: none may choose code to load.
    for name, value in variables.items():
        if name.upper().startswith(_OTHERS) or name in _OTHER_NAMES:
            raise ValueError(f"{name} belongs to the system, and a job cannot set it")
        if looks_secret(name, value):
            raise ValueError(
                f"{name} looks like a secret, and whoever may read the job could read it: {_PLACE}"
            )
        if not _PLAIN.fullmatch(value):
            raise ValueError(f"{name} must be no path, no URL and no import path: {_PLACE}")
    return variables


EnvVariables = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")],
    ],
    Field(max_length=16),
    AfterValidator(_require_own_variables),
]
"""Names and values: few and short, as they travel with every task. No secrets."""
