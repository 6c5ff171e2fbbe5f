"""Counts times durations beside what the ledgers of recorded runs say.

Those runs were made on another machine with other work beside them, and measured. So their ledgers
say more seconds; but they say so of every policy alike, and that is what a comparison needs.
"""

import json
from dataclasses import replace
from statistics import median

import pytest

from experiments.outcome import JobOutcome
from experiments.repricing import Made, reprice
from experiments.store import packed_cells
from experiments.studies.money.calibration import durations
from experiments.studies.money.dollars import regimes
from tests.documents import ROOT

CELLS = packed_cells(ROOT / "experiments" / "results" / "policies_standard")


def part_of_the_ledgers(condition: str, env_id: str) -> float:
    """Return the median over runs of their seconds by counts, in those of their ledgers."""
    cpu = regimes()[2]
    # They had 64 environments provisioned, and no start.
    regime = replace(cpu, start_s=0.0, basis=replace(cpu.basis, provisioned=64))
    known, parts = durations(env_id, "standard"), []
    for line in (line for cell, line in CELLS.items() if cell[:2] == (condition, env_id)):
        run = JobOutcome.model_validate(json.loads(line)["outcome"])
        spent = reprice(Made(run=run, durations=known), regime)
        parts.append(spent.seconds[-1] / run.projected_wall_s)
    return median(parts)


def test_seconds_by_counts_are_a_like_part_of_the_ledgers_for_every_policy() -> None:
    parts = [
        part_of_the_ledgers(condition, env_id)
        for condition in ("fixed 16", "nitro", "hydrozoa", "kungfu")
        for env_id in ("Hopper-v4", "Walker2d-v4")
    ]
    assert min(parts) > 0.5
    assert max(parts) < 1.0
    assert max(parts) == pytest.approx(min(parts), rel=0.1)
