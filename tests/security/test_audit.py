"""The audit's verdict: silence of a database is not a clean bill of health."""

import json
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from tests.security.advisories import (
    Advisory,
    Snapshot,
    read_snapshot,
    take_snapshot,
    write_snapshot,
)
from tests.security.audit import (
    FOUND,
    NOT_DONE,
    Audit,
    main,
    read_pins,
    read_report,
    search,
    verdict,
)

ROOT = Path(__file__).parents[2]
CLEAN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
BAD = {
    "name": "c",
    "version": "2",
    "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}, {"id": "CVE-2", "fix_versions": []}],
}


def report(*packages: Mapping[str, object]) -> Audit | None:
    return read_report(json.dumps({"dependencies": packages, "fixes": []}))


def test_a_report_is_read() -> None:
    assert report(CLEAN, SKIPPED, BAD) == Audit(
        vulnerable=("c 2: CVE-1 (fixed in 3)", "c 2: CVE-2 (fixed in no release yet)"),
        unknown=("b",),
        num_checked=2,
    )


@pytest.mark.parametrize("text", ["", "ERROR: connection refused", "[]", "{}"])
def test_what_is_no_report_is_none(text: str) -> None:
    assert read_report(text) is None


def test_clean_is_only_what_one_database_knew_all_of() -> None:
    assert verdict([report(CLEAN)])[0] == 0
    assert verdict([None, report(CLEAN)])[0] == 0
    assert verdict([report(CLEAN, SKIPPED), report(CLEAN, CLEAN)])[0] == 0


def test_one_vulnerability_is_enough_whoever_else_was_silent() -> None:
    code, text = verdict([report(SKIPPED, BAD)])
    assert code == FOUND
    assert "CVE-1" in text


@pytest.mark.parametrize(
    "audits",
    [[], [None, None], [report(CLEAN, SKIPPED)], [report(SKIPPED), None], [report()]],
    ids=range(5),
)
def test_an_audit_that_did_not_take_place_says_so_loudly(audits: list[Audit | None]) -> None:
    code, text = verdict(audits)
    assert code == NOT_DONE
    assert text.startswith("!!!")
    assert "NOT AUDITED" in text


def test_a_file_that_is_not_there_is_told() -> None:
    assert main(["nothing.txt"]) == 2


RECORD = """
id: PYSEC-2024-1
aliases: [CVE-2024-1]
affected:
- package: {name: Some_Package, ecosystem: PyPI}
  ranges:
  - type: GIT
    events: [{introduced: "0"}, {fixed: 767f6aa}]
  - type: ECOSYSTEM
    events: [{introduced: "0"}, {fixed: "1.2"}, {introduced: "2.0"}, {last_affected: "2.4"}]
  versions: ["1.0", "1.1", "2.0", "2.4"]
"""
LISTED = """
id: PYSEC-2024-2
affected:
- package: {name: some-package, ecosystem: PyPI}
  versions: ["9.9"]
"""
WITHDRAWN = RECORD.replace("PYSEC-2024-1", "PYSEC-2024-3") + "withdrawn: 2024-02-02"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository that is laid out like the PyPA's."""
    folder = tmp_path / "database" / "vulns" / "some-package"
    folder.mkdir(parents=True)
    for number, record in enumerate((RECORD, LISTED, WITHDRAWN)):
        (folder / f"PYSEC-2024-{number}.yaml").write_text(record)
    (tmp_path / "database" / "vulns" / ".id-allocator").write_text("17")
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
        command = ["git", *identity, *arguments]
        subprocess.run(
            command,
            cwd=tmp_path / "database",
            check=True,
            env={
                "PATH": "/usr/bin:/bin:/usr/local/bin",
                "HOME": str(tmp_path),
                "GIT_COMMITTER_DATE": "2024-10-10T12:00:00Z",
            },
        )
    return tmp_path / "database"


def test_a_snapshot_keeps_what_decides_whether_a_version_is_affected(
    clone: Path, tmp_path: Path
) -> None:
    taken = take_snapshot(clone)
    assert taken.date == "2024-10-10"
    write_snapshot(taken, tmp_path / "advisories.json")
    read = read_snapshot(tmp_path / "advisories.json")
    assert read == taken
    ranged, listed = read.packages["some-package"]
    assert (ranged.id, ranged.aliases, ranged.fixed_in) == (
        "PYSEC-2024-1",
        ("CVE-2024-1",),
        ("1.2",),
    )
    affected = [
        v for v in ("1.1", "1.2rc1", "1.2", "1.10", "2.0", "2.4", "2.4.1") if ranged.affects(v)
    ]
    assert affected == ["1.1", "1.2rc1", "2.0", "2.4"]
    assert listed.affects("9.9")
    assert not listed.affects("9.10")


def test_what_is_known_offline_is_found_and_the_age_is_told() -> None:
    advisory = Advisory(id="PYSEC-1", aliases=("CVE-1",), ranges=(("0", "2", None),), versions=())
    snapshot = Snapshot(date="2024-10-10", commit="c", packages={"b": (advisory,)})
    day = date(2024, 10, 20)
    code, text = search({"a": "1", "b": "1.9"}, snapshot, today=day)
    assert code == FOUND
    assert text.splitlines()[1:] == ["b 1.9: PYSEC-1, CVE-1 (fixed in 2)"]
    for said in (text, search({"a": "1", "b": "2"}, snapshot, today=day)[1]):
        assert "of 2024-10-10, 10 days old" in said
    assert search({"a": "1", "b": "2"}, snapshot, today=day)[0] == 0


def test_pins_are_read_by_their_normalised_names() -> None:
    text = "# pinned\nRuamel.YAML_x==1.0  # why\na==2; python_version < '3.12'\n-e .\n"
    assert read_pins(text) == {"ruamel-yaml-x": "1.0", "a": "2"}


def test_nothing_that_is_pinned_is_known_to_the_database_of_this_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--offline", str(ROOT / "constraints.txt")]) == 0
    assert "days old" in capsys.readouterr().err
    old = tmp_path / "old.txt"
    old.write_text("torch==1.13.0\nJinja2==2.11.2\n")
    assert main(["--offline", str(old)]) == FOUND
    said = capsys.readouterr().err
    assert "torch 1.13.0: PYSEC-2022-43015, CVE-2022-45907 (fixed in 1.13.1)" in said
    assert "jinja2 2.11.2: PYSEC-2021-66" in said
