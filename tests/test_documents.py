"""What the documents list is all there is, and no more."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from services.learner.record.tracking import LearnerMetrics
from services.scaler.metrics import Metrics

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
PAGES += [*sorted((DOCS / "how-to").glob("*.md")), *sorted((DOCS / "concepts").glob("*.md"))]
PACKAGES = "nitro|services|functions|learning|shared|cdk|benchmarks|experiments|tests"


def _published(text: bytes) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text.decode())
        if not family.name.endswith("_created")
    }


def test_operations_names_every_metric() -> None:
    learner = CollectorRegistry()
    LearnerMetrics(learner)
    published = _published(Metrics().render()) | _published(generate_latest(learner))
    named = re.findall(
        r"nitro_(?:scaler|learner)_[a-z_]+", (DOCS / "operations.md").read_text(encoding="utf-8")
    )
    assert set(named) == published
    assert len(published) > 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_name_files_and_modules_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(rf"[`\s]((?:{PACKAGES}|docs|containers|examples)/[\w./-]*)", text)
    missing = [path for path in named if not (ROOT / path.rstrip(".")).exists()]
    dotted = re.findall(rf"(?:`|-m )(?!cdk)((?:{PACKAGES})(?:\.\w+)+)", text)
    missing += [module for module in dotted if not _is_there(module)]
    assert not missing


def test_imports_in_documents_work() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    imports = re.findall(rf"^from (?:{PACKAGES}).*", text, re.MULTILINE)
    assert imports
    for line in imports:
        exec(line, {})


def _is_there(dotted: str) -> bool:
    """Whether there is such a package, module, or name in a module."""
    path = ROOT / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    module = path.parent.with_suffix(".py")
    return module.exists() and path.name in module.read_text(encoding="utf-8")
