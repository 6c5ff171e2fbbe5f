"""The vulnerability database that is part of this tree, for machines that reach no other.

It is taken from the PyPA's advisory database (CC BY 4.0), a Git repository of OSV records. Only
what decides whether a version is affected is kept, in `advisories.json`. (The package index has one
database to install, safety-db: of 2021, and its licence forbids commercial use.) To take it again:

    git clone --bare URL-OF-PYPA-ADVISORY-DATABASE folder
    python -m tests.security.advisories folder
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

SNAPSHOT = Path(__file__).with_name("advisories.json")
_SOURCE = "PyPA advisory database, CC BY 4.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """One vulnerability of one package."""

    id: str
    aliases: tuple[str, ...]
    """Its names elsewhere, such as its CVE."""
    ranges: tuple[tuple[str, str | None, str | None], ...]
    """First affected version, first version that is not, last one that is; None where unsaid."""
    versions: tuple[str, ...]
    """Affected versions one by one, where there are no ranges."""

    def affects(self, version: str) -> bool:
        """Say whether a version has it."""
        wanted = Version(version)
        return version in self.versions or any(
            Version(introduced) <= wanted
            and (fixed is None or wanted < Version(fixed))
            and (last is None or wanted <= Version(last))
            for introduced, fixed, last in self.ranges
        )

    @property
    def fixed_in(self) -> tuple[str, ...]:
        """Versions that no longer have it."""
        return tuple(fixed for _, fixed, _ in self.ranges if fixed is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was known on one day."""

    date: str
    commit: str
    packages: Mapping[str, tuple[Advisory, ...]]
    """By normalised name; of a package that is not in it nothing was known."""


def read_snapshot(path: Path = SNAPSHOT) -> Snapshot:
    """Read the database of this tree."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    packages = {
        name: tuple(_from_json(entry) for entry in entries)
        for name, entries in raw["packages"].items()
    }
    return Snapshot(date=raw["date"], commit=raw["commit"], packages=packages)


def take_snapshot(repository: Path) -> Snapshot:
    """Read a clone of the PyPA's database, as of its newest commit."""
    commit, date = _git(repository, "log", "-1", "--format=%H %cs").split()
    names = _git(repository, "ls-tree", "-r", "--name-only", "HEAD", "vulns").splitlines()
    packages: dict[str, list[Advisory]] = {}
    for record in _records(repository, [name for name in names if name.endswith(".yaml")]):
        if "withdrawn" not in record:
            for affected in record.get("affected", []):
                name = canonicalize_name(affected["package"]["name"])
                packages.setdefault(name, []).append(_advisory(record, affected))
    return Snapshot(
        date=date,
        commit=commit,
        packages={name: tuple(found) for name, found in sorted(packages.items())},
    )


def write_snapshot(snapshot: Snapshot, path: Path = SNAPSHOT) -> None:
    """Write it, one package to a line."""
    head = {"source": _SOURCE, "date": snapshot.date, "commit": snapshot.commit}
    lines = [
        f"{json.dumps(name)}: {json.dumps([asdict(a) for a in found], separators=(',', ':'))}"
        for name, found in snapshot.packages.items()
    ]
    text = json.dumps(head)[:-1] + ', "packages": {\n' + ",\n".join(lines) + "\n}}\n"
    path.write_text(text, encoding="utf-8")


def _records(repository: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    asked = "".join(f"HEAD:{name}\n" for name in names)
    answer = subprocess.run(
        ["git", "-C", str(repository), "cat-file", "--batch"],
        input=asked.encode(),
        capture_output=True,
        check=True,
    ).stdout
    at = 0
    while at < len(answer):
        start = answer.index(b"\n", at) + 1
        end = start + int(answer[at:start].rsplit(b" ", 1)[1])
        yield yaml.load(answer[start:end], Loader=yaml.CSafeLoader)
        at = end + 1


def _advisory(record: Mapping[str, Any], affected: Mapping[str, Any]) -> Advisory:
    ranges = [
        bounds
        for found in affected.get("ranges", [])
        if found["type"] == "ECOSYSTEM"
        for bounds in _bounds(found["events"])
    ]
    return Advisory(
        id=record["id"],
        aliases=tuple(record.get("aliases", [])),
        ranges=tuple(ranges),
        versions=() if ranges else tuple(affected.get("versions", [])),
    )


def _bounds(events: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield what lies between each introduction and what follows it (OSV schema, `events`)."""
    introduced: str | None = None
    for event in events:
        if "introduced" in event:
            if introduced is not None:
                yield introduced, None, None
            introduced = str(event["introduced"])
        elif introduced is not None and ("fixed" in event or "last_affected" in event):
            yield introduced, event.get("fixed"), event.get("last_affected")
            introduced = None
    if introduced is not None:
        yield introduced, None, None


def _from_json(entry: Mapping[str, Any]) -> Advisory:
    return Advisory(
        id=entry["id"],
        aliases=tuple(entry["aliases"]),
        ranges=tuple((first, fixed, last) for first, fixed, last in entry["ranges"]),
        versions=tuple(entry["versions"]),
    )


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    write_snapshot(take_snapshot(Path(sys.argv[1])))
