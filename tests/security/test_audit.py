"""The audit's verdict: silence of a database is not a clean bill of health."""

import json
from collections.abc import Mapping

import pytest

from tests.security.audit import FOUND, NOT_DONE, Audit, main, read_report, verdict

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
