"""Known vulnerabilities in what is pinned: `python -m tests.security.audit constraints.txt`.

The databases of OSV and PyPI are asked by pip-audit, which ends well when it could not look a
package up. Here that is a failure of its own, said loudly: an audit that did not take place must
not look like one that found nothing. Where neither can be reached, and with `--offline`, the
database that is part of this tree is searched (`advisories.py`), and its age is told.

Exit codes: 0 nothing is known, 1 something is, 3 no vulnerability database could be reached and the
one of this tree knows nothing.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.security.advisories import Snapshot, read_snapshot

SERVICES = ("osv", "pypi")
"""Databases in the order they are tried: the first that knows every package decides."""
FOUND = 1
NOT_DONE = 3
_LONGEST_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What one database said."""

    vulnerable: tuple[str, ...]
    """One line per vulnerability."""
    unknown: tuple[str, ...]
    """Packages that could not be looked up."""
    num_checked: int


def read_report(text: str) -> Audit | None:
    """Return what pip-audit's JSON says; None when it is no report, as after a failed request."""
    try:
        packages = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    return Audit(
        vulnerable=tuple(
            f"{package['name']} {package['version']}: {found['id']}"
            f" (fixed in {', '.join(found['fix_versions']) or 'no release yet'})"
            for package in packages
            for found in package.get("vulns", [])
        ),
        unknown=tuple(package["name"] for package in packages if "skip_reason" in package),
        num_checked=sum("vulns" in package for package in packages),
    )


def verdict(audits: Sequence[Audit | None]) -> tuple[int, str]:
    """Return exit code and text for what the databases said, in their order."""
    reached = [audit for audit in audits if audit is not None]
    vulnerable = sorted({line for audit in reached for line in audit.vulnerable})
    if vulnerable:
        return FOUND, "\n".join(["Known vulnerabilities:", *vulnerable])
    whole = next((audit for audit in reached if audit.num_checked and not audit.unknown), None)
    if whole is not None:
        return 0, f"No known vulnerability in {whole.num_checked} packages."
    most = max((audit.num_checked for audit in reached), default=0)
    bar = "!" * 78
    return NOT_DONE, (
        f"{bar}\nNOT AUDITED: no vulnerability database could be reached, or none knew every "
        f"package\n({most} looked up). This says nothing about the dependencies. Run "
        f"`make audit` again\nwhere a vulnerability service can be reached.\n{bar}"
    )


def search(pins: Mapping[str, str], snapshot: Snapshot, *, today: date) -> tuple[int, str]:
    """Return exit code and text for what the database of this tree knows.

    Args:
        pins: Version by normalised name of the package.
        snapshot: The database.
        today: Day that its age is told at.
    """
    found = [
        f"{name} {version}: {', '.join((advisory.id, *advisory.aliases))}"
        f" (fixed in {', '.join(advisory.fixed_in) or 'no release yet'})"
        for name, version in sorted(pins.items())
        for advisory in snapshot.packages.get(name, ())
        if advisory.affects(version)
    ]
    age = (today - date.fromisoformat(snapshot.date)).days
    source = f"the database of this tree, of {snapshot.date}, {age} days old"
    if found:
        return FOUND, "\n".join([f"Known vulnerabilities, by {source}:", *found])
    return 0, (
        f"OFFLINE: nothing is known of {len(pins)} packages by {source}.\n"
        "OFFLINE: what became known since then is not in it; `make audit` asks the online ones."
    )


def read_pins(text: str) -> dict[str, str]:
    """Return the version by normalised name of each `name==version` line."""
    lines = [line.split("#")[0].split(";")[0] for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name.strip()): version.strip() for name, version in pairs}


def main(arguments: Sequence[str]) -> int:
    """Audit the file named; return the exit code."""
    offline = "--offline" in arguments
    files = [Path(argument) for argument in arguments if argument != "--offline"]
    if len(files) != 1 or not files[0].is_file():
        sys.stderr.write("name one file of pinned requirements, such as constraints.txt\n")
        return 2
    pins = read_pins(files[0].read_text(encoding="utf-8"))
    code, text = search(pins, read_snapshot(), today=datetime.now(UTC).date())
    if not offline:
        online, said = _ask_online(files[0])
        if online != NOT_DONE:
            code, text = online, said
        else:
            code, text = code or NOT_DONE, f"{said}\n{text}"
    sys.stderr.write(f"{text}\n")
    return code


def _ask_online(requirements: Path) -> tuple[int, str]:
    audits: list[Audit | None] = []
    for service in SERVICES:
        audits.append(read_report(_ask(service, str(requirements))))
        code, text = verdict(audits)
        if code != NOT_DONE:
            break
    return code, text


def _ask(service: str, requirements: str) -> str:
    command = [sys.executable, "-m", "pip_audit", "--requirement", requirements]
    command += ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    command += ["--vulnerability-service", service, "--timeout", "15"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
