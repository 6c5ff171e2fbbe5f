"""The real `cdk bootstrap`, `cdk deploy` and `cdk destroy`, against an AWS emulator.

Images are built, pushed to a registry on this machine and run from there. What is deployed then
trains: see `deployed_containers.py` for what stands in for what. Not reached: the types in
`emulated_aws.RECORDED_ONLY`, and what docs/deploy.md lists.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

import nitro
from cdk.empty_bucket import bucket_of, empty
from nitro.afar.fetching import fetch
from nitro.client.client import NitroClient
from nitro.runs.reading import read_run
from tests.cdk.deployed_containers import (
    STACK,
    Agent,
    Cdk,
    Machine,
    cluster,
    explained,
    resource,
)
from tests.compose.waiting import has_ended, wait_for, wait_job
from tests.e2e.runs import tiny, tiny_search
from tests.patience import ANSWER_S

pytestmark = pytest.mark.deploy

Counted = Callable[[str], float]


FAMILIES = ("nitro-gpu-learner", "nitro-cpu-learner")


def _capacity() -> tuple[int, int, int]:
    """Return provisioned concurrency, and learners' tasks, with a GPU and without."""
    functions = boto3.client("lambda")
    num_warm = 0
    with contextlib.suppress(functions.exceptions.ProvisionedConcurrencyConfigNotFoundException):
        config = functions.get_provisioned_concurrency_config(
            FunctionName=resource("Actor", "AWS::Lambda::Function"), Qualifier="live"
        )
        num_warm = config["RequestedProvisionedConcurrentExecutions"]
    ecs = boto3.client("ecs")
    gpu, cpu = (
        len(ecs.list_tasks(cluster=cluster(), family=family)["taskArns"]) for family in FAMILIES
    )
    return num_warm, gpu, cpu


@pytest.mark.usefixtures("aws_account", "deployed")
def test_the_stack_is_there_and_nothing_costly_is_on() -> None:
    (stack,) = boto3.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    assert {o["OutputKey"] for o in stack["Outputs"]} == {
        "ActorAlias",
        "ApiUrl",
        "FirstCurl",
        "JobsTable",
        "ReadToken",
        "ReadViewerToken",
        "RunsBucket",
    }
    assert _capacity() == (0, 0, 0)


@pytest.mark.usefixtures("aws_account", "deployed")
def test_a_token_was_made() -> None:
    secret = resource("StoresToken", "AWS::SecretsManager::Secret")
    token = boto3.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]
    assert len(token) == 43


@pytest.mark.usefixtures("aws_account", "deployed")
def test_the_deployed_switch_turns_off_what_was_left_on() -> None:
    functions, ecs = boto3.client("lambda"), boto3.client("ecs")
    actor = resource("Actor", "AWS::Lambda::Function")
    functions.put_provisioned_concurrency_config(
        FunctionName=actor, Qualifier="live", ProvisionedConcurrentExecutions=64
    )
    for family in FAMILIES:
        ecs.run_task(
            cluster=cluster(), taskDefinition=family, launchType="FARGATE", startedBy="forgotten"
        )
    assert _capacity() == (64, 1, 1)

    first, *others = _dead_man()
    assert first == "provisioned concurrency"
    assert [name.partition(" (")[0] for name in others] == ["learner of forgotten"] * 2
    assert _capacity() == (0, 0, 0)


def _dead_man() -> list[str]:
    """Have the dead-man switch look; return what it turned off."""
    name = resource("DeadMan", "AWS::Lambda::Function")
    answer: dict[str, Any] = json.load(boto3.client("lambda").invoke(FunctionName=name)["Payload"])
    return list(answer["closed"])


@pytest.fixture(scope="module")
def counted(scaler: tuple[str, str]) -> Counted:
    """Return what looks up a series of the scaler's metrics; it is 0 until they have it."""
    url, token = scaler
    headers = {"Authorization": f"Bearer {token}"}

    def look(series: str) -> float:
        said = httpx.get(f"{url}/metrics", headers=headers, timeout=ANSWER_S).text.splitlines()
        found = (line.rpartition(" ") for line in said)
        return sum(float(value) for name, _, value in found if name == series)

    return look


def test_a_job_turns_capacity_on_and_its_stop_turns_it_off(
    api: NitroClient, on_docker: Machine
) -> None:
    job_id = api.submit(tiny(actors={"min": 2, "max": 8})).job_id
    with explained(on_docker):
        wait_for("capacity", lambda: _capacity() == (8, 1, 0) or None)
    assert api.get(job_id).status == "queued"
    assert api.stop(job_id).status == "stopped"
    with explained(on_docker):
        wait_for("capacity to go", lambda: _capacity() == (0, 0, 0) or None)


def test_three_jobs_train_side_by_side_in_three_tasks_and_one_that_is_killed_goes_on(
    api: NitroClient, agent: Agent, counted: Counted, on_docker: Machine, tmp_path: Path
) -> None:
    specs = {
        "gpu": tiny(),
        # Its episodes go on, as those of the default preset do.
        "cpu": tiny(
            learner="auto",
            warm="reuse",
            episodes={"horizon": "limit"},
            stop={"max_rounds": 20},
        ),
        "functions": tiny(
            env_id="Pendulum-v1", learner="functions", warm="reuse", learner_functions={"slices": 4}
        ),
    }
    ids = {kind: api.submit(spec).job_id for kind, spec in specs.items()}
    with explained(on_docker):
        wait_for("capacity", lambda: _capacity() == (8, 1, 2) or None)
        wait_job(api, ids["cpu"], lambda job: job.progress.rounds >= 2)
        agent.kill(ids["cpu"])
        for kind, job_id in ids.items():
            job = wait_job(api, job_id, has_ended)
            rounds = 20 if kind == "cpu" else 4
            assert (job.status, job.error, job.progress.rounds) == ("succeeded", None, rounds)
            assert job.learner == ("gpu" if kind == "gpu" else "cpu")
        steer_and_pull(api, counted, tmp_path / "runs")
        wait_for("capacity to go", lambda: _capacity() == (0, 0, 0) or None)
        wait_for("learners to end", lambda: len(agent.ended) == 4 or None)
    assert [agent.ended[ids[kind]] for kind in ids] == [[0], [137, 0], [0]]
    assert _learner_price(api, ids["gpu"]) > 5 * _learner_price(api, ids["cpu"])
    billed = {kind: set(api.cost(job_id).by_item) for kind, job_id in ids.items()}
    assert [kind for kind in ids if "provisioned_concurrency" in billed[kind]] == ["gpu"]
    assert [kind for kind in ids if "gradient_requests" in billed[kind]] == ["functions"]
    assert counted("nitro_scaler_cold_starts_total") <= 2  # of two actors, used again and again

    job_id, bucket = ids["gpu"], resource("StoresRuns", "AWS::S3::Bucket")
    stored = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"runs/{job_id}/")
    names = {found["Key"].split("/")[2] for found in stored["Contents"]}
    assert {"job.json", "rounds.jsonl", "ledger.jsonl", "checkpoints"} <= names

    api.delete(job_id)
    left = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"runs/{job_id}/")
    assert left["KeyCount"] == 0


def steer_and_pull(api: NitroClient, counted: Counted, runs: Path) -> None:
    """Stop a job, let it go on, stop it again, and fetch what it left in the bucket.

    On the way, what it has on is left alone by the switch, and idle environments are pinged.
    """
    endless = tiny(learner="auto", warm="reuse", stop={"max_rounds": 100_000})
    job_id = api.submit(endless).job_id
    wait_job(api, job_id, lambda job: job.progress.rounds >= 2)
    wait_for("capacity of others to go", lambda: _capacity() == (0, 0, 1) or None)
    assert _dead_man() == []
    assert _capacity() == (0, 0, 1)
    api.stop(job_id)
    stopped = wait_job(api, job_id, has_ended)
    assert stopped.status == "stopped"
    api.resume(job_id)
    wait_job(api, job_id, lambda job: job.progress.rounds > stopped.progress.rounds)
    wait_for("a ping", lambda: counted('nitro_scaler_pings_total{found="warm"}') or None)
    api.stop(job_id)
    ended = wait_job(api, job_id, has_ended)
    folder = fetch(api, job_id, runs)  # by links that the scaler has signed
    made = [line for line in read_run(folder).rounds if line.plan.stop is None]
    assert len(made) == ended.progress.rounds > stopped.progress.rounds
    assert nitro.load(folder).evaluate(episodes=1).mean_return > 0.0


def _learner_price(api: NitroClient, job_id: str) -> float:
    """Return what a job paid for a second of its learner."""
    lines = api.every_line(job_id)
    (price,) = {line.unit_price_usd for line in lines if line.item == "learner"}
    return price


@pytest.mark.usefixtures("agent")
def test_a_search_trains_on_functions(api: NitroClient, on_docker: Machine) -> None:
    two = {"min": 2, "max": 2, "own": 0}
    search = tiny_search(actors=two, scaling={"policy": "fixed", "num_actors": 2})
    job_id = api.submit(search).job_id
    with explained(on_docker):
        job = wait_job(api, job_id, has_ended)
        wait_for("capacity to go", lambda: _capacity() == (0, 0, 0) or None)
    assert (job.status, job.error, job.progress.rounds) == ("succeeded", None, 3)
    assert job.progress.last_return is not None


def test_deploying_again_changes_nothing(deployed: Cdk) -> None:
    assert "(no changes)" in deployed("deploy", "--require-approval", "never")


@pytest.mark.usefixtures("aws_account")
def test_nothing_of_the_stack_is_left_in_the_end(deployed: Cdk) -> None:
    bucket = resource("StoresRuns", "AWS::S3::Bucket")
    table = resource("StoresJobs", "AWS::DynamoDB::Table")
    boto3.client("s3").put_object(Bucket=bucket, Key="runs/job/job.json", Body=b"{}")

    assert empty(bucket_of(STACK)) >= 1
    deployed("destroy", "--force")

    buckets = [b["Name"] for b in boto3.client("s3").list_buckets()["Buckets"]]
    assert bucket not in buckets
    assert table not in boto3.client("dynamodb").list_tables()["TableNames"]
    functions = boto3.client("lambda").list_functions()["Functions"]
    assert [f["FunctionName"] for f in functions if f["FunctionName"].startswith(STACK)] == []
