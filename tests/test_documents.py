"""What the documents list is all there is, and no more."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from services.learner.record.tracking import LearnerMetrics
from services.scaler.metrics import Metrics

DOCS = Path(__file__).parents[1] / "docs"


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
