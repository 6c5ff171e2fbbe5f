"""Eight random schedules of faults; `python -m tests.campaign` plays hundreds."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from tests.campaign.checks import Ends, launched_twice
from tests.campaign.play import Stage, play, undisturbed_digests
from tests.campaign.schedule import Campaign, draw

_DRAWN = Campaign(seed=2026)
SCHEDULES = [
    *((_DRAWN, index) for index in range(6)),
    (replace(_DRAWN, algorithm="sac"), 12),
    (replace(_DRAWN, algorithm="ars"), 10),
]
"""Campaigns and indices."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("campaign")) as opened:
        yield opened


@pytest.fixture(scope="module")
def digests(stage: Stage) -> Callable[[Campaign], dict[int, str]]:
    """Weights of a campaign's undisturbed runs, which are made once."""
    return cache(partial(undisturbed_digests, stage))


@pytest.mark.parametrize(
    ("campaign", "index"), SCHEDULES, ids=[f"{c.name}-{index}" for c, index in SCHEDULES]
)
def test_a_job_survives_whatever_ends_around_it(
    stage: Stage,
    digests: Callable[[Campaign], dict[int, str]],
    campaign: Campaign,
    index: int,
) -> None:
    schedule = draw(campaign, index)
    assert schedule.learners == 1, "pauses are played by test_paused_learner.py"
    outcome = play(schedule, stage, digests(campaign))
    # No wait is bounded but by patience, which is less than a round's deadline.
    assert not outcome.bad, outcome.model_dump_json(indent=1)


@pytest.mark.parametrize(
    ("ended", "scaler", "emulator", "number"),
    [
        (None, (), (), 1),
        ("Runtime.ExitError", (), (), 0),
        ("Runtime.ExitError", (2.0,), (), 1),
        (None, (), (2.0,), 0),
        (None, (2.0,), (2.0,), 1),
        ("Runtime.ExitError", (4.0,), (0.5,), 0),
    ],
)
def test_an_actor_is_launched_again_by_its_own_scaler_once_its_first_launch_failed(
    tmp_path: Path,
    ended: str | None,
    scaler: tuple[float, ...],
    emulator: tuple[float, ...],
    number: int,
) -> None:
    journal = tmp_path / "journal.jsonl"
    event = {"job_id": "job", "mode": "sample", "round": 0, "attempt": 0, "actor_index": 1}
    lines = [
        {"at": 1.0, "id": "first", "event": event},
        {"at": 1.5, "id": "first", "ended": ended},
        {"at": 3.0, "id": "second", "event": event},
        {"at": 3.0, "id": "other", "event": {**event, "attempt": 1}},
        {"at": 3.0, "id": "another's", "event": {**event, "job_id": "other"}},
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert launched_twice(journal, "job", Ends(scaler=scaler, emulator=emulator)) == number
