"""Provisioned concurrency through boto3: 202, IN_PROGRESS, READY, deleted."""

import pytest
from botocore.exceptions import ClientError

from tests.services.emulator.conftest import RunningEmulator, StartEmulator, wait_until

ALIAS = {"FunctionName": "probe", "Qualifier": "live"}


@pytest.fixture(scope="module")
def provisioned(start_module_emulator: StartEmulator) -> RunningEmulator:
    return start_module_emulator(concurrency_limit=64, faults={"provisioning_s": 3600})


def status(emulator: RunningEmulator) -> str:
    answer = emulator.client().get_provisioned_concurrency_config(**ALIAS)
    return answer["Status"]


def test_put_get_delete(provisioned: RunningEmulator) -> None:
    client = provisioned.client()
    put = client.put_provisioned_concurrency_config(**ALIAS, ProvisionedConcurrentExecutions=8)
    assert put["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert put["Status"] == "IN_PROGRESS"
    assert put["RequestedProvisionedConcurrentExecutions"] == 8
    assert status(provisioned) == "IN_PROGRESS"
    provisioned.put_faults(provisioning_s=0)
    wait_until(lambda: status(provisioned) == "READY", what="READY")
    got = client.get_provisioned_concurrency_config(**ALIAS)
    assert got["AvailableProvisionedConcurrentExecutions"] == 8
    assert provisioned.stats()["environments"]["idle"] == 1  # really initialised
    assert "Init Duration" not in provisioned.invoke({}).log
    deleted = client.delete_provisioned_concurrency_config(**ALIAS)
    assert deleted["ResponseMetadata"]["HTTPStatusCode"] == 204
    missing = client.exceptions.ProvisionedConcurrencyConfigNotFoundException
    with pytest.raises(missing):
        client.get_provisioned_concurrency_config(**ALIAS)
    with pytest.raises(missing):
        client.delete_provisioned_concurrency_config(**ALIAS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"Qualifier": "$LATEST", "ProvisionedConcurrentExecutions": 1}, "unpublished"),
        ({"Qualifier": "live", "ProvisionedConcurrentExecutions": 65}, "limit 64"),
        ({"Qualifier": "stale", "ProvisionedConcurrentExecutions": 1}, "not found"),
    ],
)
def test_refusals(provisioned: RunningEmulator, options: dict[str, object], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        provisioned.client().put_provisioned_concurrency_config(
            FunctionName="probe",
            **options,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"ProvisionedConcurrentExecutions": 0}', b"nonsense"]
)
def test_a_malformed_request_is_refused(provisioned: RunningEmulator, body: bytes) -> None:
    path = "/2019-09-30/functions/probe/provisioned-concurrency?Qualifier=live"
    status_code, headers, answer = provisioned.request("PUT", path, body=body)
    assert (status_code, headers["x-amzn-errortype"]) == (400, "InvalidParameterValueException")
    assert b"ProvisionedConcurrentExecutions" in answer


def test_a_function_that_cannot_start_fails(start_emulator: StartEmulator) -> None:
    emulator = start_emulator(
        faults={"provisioning_s": 0}, variables={"PROBE_FAILS_AT_IMPORT": "1"}
    )
    client = emulator.client()
    client.put_provisioned_concurrency_config(**ALIAS, ProvisionedConcurrentExecutions=1)
    wait_until(lambda: status(emulator) == "FAILED", what="FAILED")
    reason = client.get_provisioned_concurrency_config(**ALIAS)["StatusReason"]
    assert reason.startswith("FUNCTION_ERROR_INIT_FAILURE")
