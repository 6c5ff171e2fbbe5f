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
    account.turn_on_the_learners()


def test_without_a_heartbeat_it_closes_all_once(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    assert account.look_of_the_switch(NOW) == [
        "provisioned concurrency",
        "gpu learner",
        "cpu learner",
    ]
    for name in ("provisioned concurrency", "gpu learner", "cpu learner"):
        assert f"turned off: {name}, because no scaler" in caplog.text
    caplog.clear()
    assert account.look_of_the_switch(NOW) == []
    assert caplog.text == ""
    assert account.on() == (0, 0, 0)


def test_without_a_job_it_closes_what_somebody_left_on(account: Account) -> None:
    account.write_heartbeat(at=NOW, until=0)
    account.look_of_the_switch(NOW + 30)
    assert account.on() == (0, 0, 0)


@pytest.mark.parametrize(
    ("gpu_until", "cpu_until", "left_on"),
    [
        (0, NOW + 3600, (4, 0, 1)),
        (NOW + 3600, 0, (4, 1, 0)),
        (NOW - 1, NOW + 3600, (4, 0, 1)),
        (NOW + 3600, NOW - 1, (4, 1, 0)),
        (NOW + 3600, NOW + 60, (4, 1, 1)),
    ],
)
def test_a_job_keeps_the_learner_of_its_own_kind_on_alone(
    account: Account, gpu_until: float, cpu_until: float, left_on: tuple[int, int, int]
) -> None:
    until = max(gpu_until, cpu_until)
    account.write_heartbeat(at=NOW, until=until, gpu_until=gpu_until, cpu_until=cpu_until)
    account.look_of_the_switch(NOW + 30)
    assert account.on() == left_on


def test_the_heartbeat_of_an_earlier_scaler_speaks_for_both_kinds(account: Account) -> None:
    account.write_heartbeat(at=NOW, until=NOW + 60)
    assert account.look_of_the_switch(NOW + 60) == []
    account.look_of_the_switch(NOW + 61)
    assert account.on() == (0, 0, 0)


def test_one_that_cannot_be_closed_does_not_keep_the_others_on(account: Account) -> None:
    account.delete_service()
    with pytest.raises(SwitchError, match=r"not turned off: gpu learner .*: there is no active"):
        account.look_of_the_switch(NOW)
    assert (account.provisioned(), account.learners(account.cpu_service)) == (0, 0)


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
        "NITRO_ECS_SERVICE": account.service,
        "NITRO_ECS_CPU_SERVICE": account.cpu_service,
    }.items():
        monkeypatch.setenv(name, value)
    answer = handler({"source": "aws.events"}, None)
    assert list(answer["closed"]) == ["provisioned concurrency", "gpu learner", "cpu learner"]
    assert handler({}, None) == {"closed": {}}
