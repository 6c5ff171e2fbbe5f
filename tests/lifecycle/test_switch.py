"""The dead-man switch on an account: what it turns off, what it leaves, what it reports."""

import pytest

from functions.dead_man.handler import SwitchError, handler
from tests.lifecycle.account import ALIAS, FUNCTION, Account

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _all_are_on(account: Account) -> None:
    account.functions.put_provisioned_concurrency_config(
        FunctionName=FUNCTION, Qualifier=ALIAS, ProvisionedConcurrentExecutions=4
    )
    account.run_a_learner_of_each_kind()


def test_without_a_heartbeat_it_closes_all_once(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    closed = ["learner of on-cores", "learner of on-gpu", "provisioned concurrency"]
    assert account.look_of_the_switch(NOW) == closed
    for name in closed:
        assert f"turned off: {name}" in caplog.text
    assert caplog.text.count("because no scaler") == len(closed)
    caplog.clear()
    assert account.look_of_the_switch(NOW) == []
    assert caplog.text == ""
    assert account.on() == (0, 0, 0)


def test_without_a_job_it_closes_what_somebody_left_on(account: Account) -> None:
    account.write_heartbeat(at=NOW, until=0)
    account.look_of_the_switch(NOW + 30)
    assert account.on() == (0, 0, 0)


@pytest.mark.parametrize(
    ("jobs", "left_on"),
    [
        ({"on-cores": NOW + 3600}, (4, 0, 1)),
        ({"on-gpu": NOW + 3600}, (4, 1, 0)),
        ({"on-gpu": NOW - 1, "on-cores": NOW + 3600}, (4, 0, 1)),
        ({"on-gpu": NOW + 3600, "on-cores": NOW - 1}, (4, 1, 0)),
        ({"on-gpu": NOW + 3600, "on-cores": NOW + 60}, (4, 1, 1)),
    ],
)
def test_a_job_keeps_its_own_learner_on_alone(
    account: Account, jobs: dict[str, float], left_on: tuple[int, int, int]
) -> None:
    account.write_heartbeat(at=NOW, until=max(jobs.values()), jobs=jobs)
    account.look_of_the_switch(NOW + 30)
    assert account.on() == left_on


def test_a_forgotten_task_is_stopped_beside_one_that_is_wanted(account: Account) -> None:
    account.run_a_learner(account.cpu_family, of="")
    account.write_heartbeat(
        at=NOW, until=NOW + 60, jobs=dict.fromkeys(("on-gpu", "on-cores"), NOW + 60)
    )
    assert account.look_of_the_switch(NOW + 30) == ["learner of nobody"]
    assert account.on() == (4, 1, 1)


def test_the_heartbeat_of_an_earlier_scaler_names_no_tasks(account: Account) -> None:
    account.write_heartbeat(at=NOW, until=NOW + 60)
    account.look_of_the_switch(NOW + 60)
    assert account.on() == (4, 0, 0)


def test_one_that_cannot_be_closed_does_not_keep_the_others_on(account: Account) -> None:
    account.lose_the_cluster()
    with pytest.raises(SwitchError, match=r"not turned off: the learners' tasks, which cannot be"):
        account.look_of_the_switch(NOW)
    assert account.provisioned() == 0


def test_a_heartbeat_that_cannot_be_read_is_an_error_and_ends_nothing(account: Account) -> None:
    item = {"pk": {"S": "SCALER"}, "sk": {"S": "HEARTBEAT"}, "at": {"S": "yesterday"}}
    account.dynamodb.put_item(TableName=account.table, Item=item)
    with pytest.raises(SwitchError, match=account.table):
        account.look_of_the_switch(NOW)
    assert account.on() == (4, 1, 1)


def test_lambda_calls_it_with_everything_in_the_environment(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "NITRO_TABLE": account.table,
        "NITRO_LAMBDA_FUNCTION": FUNCTION,
        "NITRO_LAMBDA_QUALIFIER": ALIAS,
        "NITRO_ECS_CLUSTER": account.cluster,
        "NITRO_ECS_GPU_FAMILY": account.gpu_family,
        "NITRO_ECS_CPU_FAMILY": account.cpu_family,
    }.items():
        monkeypatch.setenv(name, value)
    answer = handler({"source": "aws.events"}, None)
    assert len(answer["closed"]) == 3
    assert handler({}, None) == {"closed": {}}
