"""What images install, by hash: each deployable's lock beside constraints.txt."""

import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from containers.requirements import read_project, requirements
from tests.compose.images import DOCKERFILES

_ROOT = Path(__file__).parents[2]
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")
_ENTRY = re.compile(
    r"^(\S+)==(\S+)(.*(?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", re.MULTILINE
)
_ONLY_OLD_PYTHON = {"async-timeout"}
"""Needed before Python 3.11.3 alone, which constraints.txt was not made with."""


def _locked(deployable: str) -> dict[str, str]:
    """Return the version of each package that has hashes in a deployable's lock."""
    text = (_ROOT / f"containers/locks/{deployable}.txt").read_text("utf-8")
    entries = {name: version for name, version, _ in _ENTRY.findall(text)}
    assert len(entries) == len(re.findall(r"^\S", text, re.MULTILINE))
    return entries


def _pinned() -> dict[str, str]:
    lines = (_ROOT / "constraints.txt").read_text("utf-8").split()
    return {
        canonicalize_name(name): version for name, _, version in (x.partition("==") for x in lines)
    }


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_a_lock_has_hashes_of_the_versions_that_are_pinned(deployable: str) -> None:
    pinned = _pinned()
    locked = _locked(deployable)
    expected = {name: pinned.get(name) for name in locked if name not in _ONLY_OLD_PYTHON}
    assert {name: locked[name] for name in expected} == expected


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_a_lock_names_all_that_a_deployable_asks_for_but_torch(deployable: str) -> None:
    lines = requirements(read_project(_ROOT / "pyproject.toml"), deployable)
    names = {canonicalize_name(Requirement(line).name) for line in lines} - {"torch"}
    assert names <= set(_locked(deployable))


@pytest.mark.parametrize("deployable", DOCKERFILES)
def test_an_image_installs_its_lock_by_hash_on_a_base_of_a_digest(deployable: str) -> None:
    text = (_ROOT / DOCKERFILES[deployable]).read_text("utf-8")
    assert re.search(rf"^COPY .*\bcontainers/locks/{deployable}\.txt ", text, re.MULTILINE)
    assert re.search(r"--require-hashes --no-deps --requirement (lock\.txt|\$lock)", text)
    (base,) = re.findall(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE)
    assert _DIGEST.search(base)
    assert base in (_ROOT / "docker-compose.yml").read_text("utf-8")


def test_compose_takes_redis_by_digest() -> None:
    compose = yaml.safe_load((_ROOT / "docker-compose.yml").read_text("utf-8"))
    assert _DIGEST.search(compose["services"]["redis"]["image"])
