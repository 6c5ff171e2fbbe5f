"""The record of a run: what is written, and what a crash leaves of it."""

import json
import logging
from pathlib import Path

import pytest

from services.learner.record.run_record import RunRecord
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import COST_FILE, LEDGER_FILE, ROUNDS_FILE
from shared.contracts.billing import JobCost, LedgerLine, ServerfulCost
from shared.contracts.rounds import (
    EvaluationResult,
    RoundLine,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.services.learner.made_rounds import plan
from tests.services.learner.scripted_scaler import job

_JOB = job("recorded")


def _line(round_index: int) -> RoundLine:
    timing = dict.fromkeys(RoundTiming.model_fields, 0.25)
    counts = TrajectoryCounts(launched=4, used=4, late=0, duplicate=0, lost=0)
    result = RoundResult(
        round=round_index,
        policy_version=round_index + 1,
        trajectories=counts,
        env_steps=20 + round_index,
        episode_returns=(1.0,),
        evaluation=None,
        stats={"kl": 0.01},
        timing=RoundTiming(**timing),
    )
    made = plan(_JOB.job_id, round_index=round_index)
    return RoundLine(plan=made, result=result, curvature=None, evaluation=None)


def _last_line(round_index: int) -> RoundLine:
    made = plan(_JOB.job_id, round_index=round_index).model_copy(update={"stop": "user"})
    evaluation = EvaluationResult(policy_version=round_index, returns=(3.0,), lengths=(7,))
    return RoundLine(plan=made, result=None, curvature=None, evaluation=evaluation)


def _bill(round_index: int) -> LedgerLine:
    return LedgerLine(
        round=round_index,
        attempt=0,
        item="learner",
        quantity=2.0,
        unit="second",
        unit_price_usd=0.5,
        amount_usd=1.0,
    )


@pytest.fixture
def artifacts(tmp_path: Path) -> LocalArtifacts:
    return LocalArtifacts(tmp_path)


@pytest.fixture
def record(artifacts: LocalArtifacts) -> RunRecord:
    return RunRecord(artifacts, _JOB.job_id)


def _begin(record: RunRecord, next_round: int) -> dict[int, int]:
    return record.begin(_JOB, next_round=next_round, bill=(), device="cpu")


def _rounds(artifacts: LocalArtifacts) -> list[RoundLine]:
    data = artifacts.read(_JOB.job_id, ROUNDS_FILE) or b""
    return [RoundLine.model_validate_json(text) for text in data.splitlines()]


def test_lines_come_back_as_they_were(artifacts: LocalArtifacts, record: RunRecord) -> None:
    assert _begin(record, 0) == {}
    written = [_line(0), _line(1), _last_line(2)]
    for line in written:
        record.append(line)
    assert _rounds(artifacts) == written


def test_beginning_again_keeps_the_rounds_before_and_counts_their_steps(
    artifacts: LocalArtifacts, record: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    for line in (_line(0), _line(1), _line(2), _last_line(3)):
        record.append(line)
    assert _begin(record, 2) == {0: 20, 1: 21}
    assert _rounds(artifacts) == [_line(0), _line(1)]
    assert not caplog.records


def test_the_final_line_of_a_run_that_goes_on_leaves_its_evaluation_to_the_round(
    artifacts: LocalArtifacts, record: RunRecord
) -> None:
    last = _last_line(1)
    for line in (_line(0), last):
        record.append(line)
    _begin(record, 1)
    assert _rounds(artifacts) == [_line(0)]
    record.append(_line(1))
    record.append(_line(2))
    evaluated = _line(1).model_copy(update={"evaluation": last.evaluation})
    assert _rounds(artifacts) == [_line(0), evaluated, _line(2)]


def test_a_round_that_is_evaluated_again_keeps_its_own_evaluation(
    artifacts: LocalArtifacts, record: RunRecord
) -> None:
    record.append(_last_line(0))
    _begin(record, 0)
    own = EvaluationResult(policy_version=0, returns=(4.0,), lengths=(8,))
    again = _line(0).model_copy(update={"evaluation": own})
    record.append(again)
    assert _rounds(artifacts) == [again]


def test_an_evaluation_of_a_policy_that_is_made_again_goes(
    artifacts: LocalArtifacts, record: RunRecord
) -> None:
    for line in (_line(0), _line(1), _last_line(2)):
        record.append(line)
    _begin(record, 1)
    for line in (_line(1), _line(2)):
        record.append(line)
    assert _rounds(artifacts) == [_line(0), _line(1), _line(2)]


def test_where_rounds_overlap_the_final_evaluation_is_that_of_the_round_with_its_policy(
    artifacts: LocalArtifacts,
) -> None:
    spec = _JOB.spec.model_copy(update={"algorithm": "impact", "rounds_in_flight": 3})
    overlapping = _JOB.model_copy(update={"spec": spec})
    record = RunRecord(artifacts, _JOB.job_id)
    # The policy that has learned from one round is that of round 3: two more were open before.
    last = _last_line(3)
    for line in (_line(0), last):
        record.append(line)
    record.begin(overlapping, next_round=1, bill=(), device="cpu")
    for index in (1, 2, 3):
        record.append(_line(index))
    evaluations = {line.plan.round: line.evaluation for line in _rounds(artifacts)}
    assert evaluations == {0: None, 1: None, 2: None, 3: last.evaluation}


def test_lines_that_a_newer_version_wrote_are_kept_without_what_is_new(
    artifacts: LocalArtifacts, record: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    newer = _line(0).model_dump_json().replace('{"plan":{', '{"new":1,"plan":{"new":2,', 1)
    assert '"new":2' in newer
    artifacts.append(_JOB.job_id, ROUNDS_FILE, newer)
    _begin(record, 1)
    assert _rounds(artifacts) == [_line(0)]
    assert not caplog.records


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_line_cut_off_by_a_crash_is_dropped(
    artifacts: LocalArtifacts, record: RunRecord, share: float
) -> None:
    record.append(_line(0))
    text = _line(1).model_dump_json()
    with (Path(artifacts.locate(_JOB.job_id)) / ROUNDS_FILE).open("a") as file:
        file.write(text[: int(share * len(text))])
    _begin(record, 1)
    record.append(_line(1))
    assert _rounds(artifacts) == [_line(0), _line(1)]


def test_a_damaged_line_costs_itself_only_and_is_told_of(
    artifacts: LocalArtifacts, record: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    for line in (_line(0), _line(1), _line(2)):
        record.append(line)
    path = Path(artifacts.locate(_JOB.job_id)) / ROUNDS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff\x00 not json\n" + lines[2])
    with caplog.at_level(logging.WARNING):
        _begin(record, 3)
    assert _rounds(artifacts) == [_line(0), _line(2)]
    assert "lacks rounds" in caplog.text


def test_the_bill_is_added_to_and_replaced(artifacts: LocalArtifacts, record: RunRecord) -> None:
    def ledger() -> list[LedgerLine]:
        data = artifacts.read(_JOB.job_id, LEDGER_FILE) or b""
        return [LedgerLine.model_validate_json(text) for text in data.splitlines()]

    record.bill([_bill(0)])
    told = plan(_JOB.job_id).model_copy(
        update={"settled_from": 0, "settled": (_bill(0), _bill(1), _bill(2))}
    )
    for _ in range(2):  # it is asked for again
        record.settle(told)
    record.settle(plan(_JOB.job_id).model_copy(update={"settled_from": 3}))
    assert ledger() == [_bill(0), _bill(1), _bill(2)]
    record.bill([_bill(7)])
    assert ledger() == [_bill(7)]


def test_what_a_job_came_to_is_written_without_the_lines_that_are_in_the_ledger(
    artifacts: LocalArtifacts, record: RunRecord
) -> None:
    servers = ServerfulCost(
        learner_instance="p3.2xlarge", actor_instance="c5.4xlarge", wall_s=9.0, total_usd=0.01
    )
    cost = JobCost(
        job_id=_JOB.job_id,
        settled_usd=0.5,
        reserved_usd=0.0,
        by_item={"learner": 0.5},
        lines=(_bill(0),),
        price_table="paper",
        projected_wall_s=7.0,
        serverful=(servers,),
        assumptions=("none",),
    )
    record.sum_up(cost)
    written = artifacts.read(_JOB.job_id, COST_FILE) or b""
    assert JobCost.model_validate_json(written) == cost.model_copy(update={"lines": ()})


def test_machine_and_every_hyperparameter_are_written(
    artifacts: LocalArtifacts, record: RunRecord
) -> None:
    _begin(record, 0)
    environment = json.loads(artifacts.read(_JOB.job_id, "environment.json") or b"")
    assert environment["hyperparameters"].keys() == PpoHyperparameters.model_fields.keys()
    assert environment["hyperparameters"]["hidden_sizes"] == [8]
    assert environment["device"] == "cpu"
    assert environment["libraries"]["torch"]
    described = json.loads(artifacts.read(_JOB.job_id, "job.json") or b"")
    assert described["spec"]["seed"] == 3
