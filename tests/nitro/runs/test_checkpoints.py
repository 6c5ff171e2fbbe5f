from pathlib import Path

import pytest

from nitro.errors import CommandError
from nitro.runs.checkpoints import read_checkpoint, read_policy
from nitro.runs.reading import read_job
from shared.contracts.checkpoint_rules import Which
from shared.contracts.rounds import RoundLine
from tests.nitro.checkpoints import LEFT, RIGHT, stubborn_policy, write_checkpoint
from tests.nitro.synthetic_run import evaluation, plan


def _evaluated(folder: Path, means: dict[int, float]) -> None:
    """Write a record in which the policies of these rounds have such returns."""
    lines = (
        RoundLine(plan=plan(index), result=None, curvature=None, evaluation=evaluation(index, mean))
        for index, mean in means.items()
    )
    (folder / "rounds.jsonl").write_text("".join(f"{x.model_dump_json()}\n" for x in lines))


@pytest.mark.parametrize(("which", "round_index"), [("newest", 4), ("best", 3)])
def test_it_is_the_newest_or_the_best(tmp_path: Path, which: Which, round_index: int) -> None:
    write_checkpoint(tmp_path, next_round=3, policy=stubborn_policy(LEFT))
    folder = write_checkpoint(tmp_path, next_round=4, policy=stubborn_policy(RIGHT))
    # That of round 2 was better still, but an earlier version did not keep it.
    _evaluated(folder, {0: 900.0, 2: 800.0, 3: 50.0, 4: 40.0})
    assert read_checkpoint(folder, which).run.next_round == round_index
    assert read_policy(folder, which)[0] == round_index


def test_where_training_ended_at_its_target_the_best_is_the_usual(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, next_round=3, policy=stubborn_policy(LEFT))
    folder = write_checkpoint(tmp_path, next_round=4, policy=stubborn_policy(RIGHT))
    _evaluated(folder, {3: 50.0, 4: 40.0})
    assert read_policy(folder)[0] == 4
    ended = read_job(folder).model_copy(update={"stop_reason": "target_return"})
    (folder / "job.json").write_text(ended.model_dump_json())
    assert read_policy(folder)[0] == 3
    assert read_policy(folder, "newest")[0] == 4
    _evaluated(folder, {})
    assert read_policy(folder)[0] == 4


def test_a_run_without_evaluations_has_no_best(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=3, policy=stubborn_policy(LEFT))
    _evaluated(folder, {})
    with pytest.raises(CommandError, match="no checkpoint was evaluated.*use the newest"):
        read_checkpoint(folder, "best")
