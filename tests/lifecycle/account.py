"""What is on in the account, a scaler that lives in fake time, and the ways it can die."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx

from functions.dead_man.handler import Settings as SwitchSettings
from functions.dead_man.handler import Switch, watch
from services.scaler.app import create_app
from services.scaler.capacity.reconciler import Alarm
from services.scaler.settings import Settings
from shared.contracts.jobs import Job
from shared.contracts.leases import FinishRequest, Lease
from tests.services.scaler.lambda_endpoint import serve

TOKEN = "a-token-for-tests"  # noqa: S105
ALIAS = "live"
FUNCTION = "nitro-actor"
SILENT_AFTER_S = 600.0
_PATIENCE_S = 30.0


class FakeTime(Alarm):
    """A clock that only tests move, and the alarm that keeps to it. One sleeper at a time."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self._changed = threading.Condition()
        self._rung = False
        self._sleeping_until: float | None = None
        self._calls_left: int | None = None
        self._dead = False
        self._wake: Callable[[], object] = lambda: None

    def now(self) -> float:
        """Return the time; the capacity task may be due to die of asking."""
        with self._changed:
            if self._calls_left is not None and _in_capacity():
                self._calls_left -= 1
                if self._calls_left <= 0:
                    self._calls_left, self._dead = None, True
                    self._changed.notify_all()
                    raise asyncio.CancelledError
            return self.time

    def die_at_look(self, nth: int) -> None:
        """End the capacity task, as a crash would, when it asks for the time for the nth time."""
        with self._changed:
            self._calls_left, self._dead = nth, False

    def wait_dead(self) -> None:
        """Wait until it has."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._dead, _PATIENCE_S), "it lives on"

    def ring(self) -> None:
        with self._changed:
            self._rung = True
            self._wake()

    async def sleep(self, timeout_s: float) -> None:
        loop, woken, until = asyncio.get_running_loop(), asyncio.Event(), self.time + timeout_s
        with self._changed:
            self._sleeping_until = until
            self._wake = lambda: loop.call_soon_threadsafe(woken.set)
            self._changed.notify_all()
        try:
            while not self._rung and self.time < until:
                await woken.wait()
                woken.clear()
        finally:
            with self._changed:
                self._rung, self._sleeping_until, self._wake = False, None, lambda: None

    def advance(self, seconds: float) -> None:
        """Let time pass and wait until whoever woke sleeps again."""
        with self._changed:
            self.time += seconds
            self._wake()
        self.settle()

    def settle(self) -> None:
        """Wait until the capacity task sleeps with nothing to do."""
        with self._changed:
            settled = self._changed.wait_for(self._idle, _PATIENCE_S)
        assert settled, "capacity does not come to rest"

    def _idle(self) -> bool:
        until = self._sleeping_until
        return until is not None and until > self.time and not self._rung


def _in_capacity() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # on a thread without a loop
        return False
    return task is not None and task.get_name() == "capacity"


@dataclass
class Account:
    """The account's resources and what is on."""

    lambda_url: str
    table: str = field(default_factory=lambda: f"jobs-{uuid.uuid4().hex}")
    cluster: str = field(default_factory=lambda: f"cluster-{uuid.uuid4().hex}")
    gpu_family: str = "gpu-learner"
    cpu_family: str = "cpu-learner"

    def __post_init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.ecs = boto3.client("ecs")
        self.functions = boto3.client("lambda")

    def create(self) -> None:
        self.create_table()
        self.ecs.create_cluster(clusterName=self.cluster)
        self.define_tasks()

    def create_table(self) -> None:
        self.dynamodb.create_table(
            TableName=self.table,
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def define_tasks(self) -> None:
        for family in (self.gpu_family, self.cpu_family):
            self.ecs.register_task_definition(
                family=family, containerDefinitions=[{"name": "learner", "image": "x", "memory": 1}]
            )

    def lose_the_cluster(self) -> None:
        """Have the scaler and the switch look for one that is not there."""
        self.cluster = f"lost-{uuid.uuid4().hex}"

    def run_a_learner(self, family: str, *, of: str = "a-job") -> None:
        """Do what a scaler does for a job."""
        self.ecs.run_task(
            cluster=self.cluster, taskDefinition=family, launchType="FARGATE", startedBy=of
        )

    def run_a_learner_of_each_kind(self) -> None:
        self.run_a_learner(self.gpu_family, of="on-gpu")
        self.run_a_learner(self.cpu_family, of="on-cores")

    def end_the_learners(self) -> None:
        """Do what happens when all of them end by themselves."""
        for arn in self.tasks():
            self.ecs.stop_task(cluster=self.cluster, task=arn, reason="it ended")

    def tasks(self, family: str | None = None) -> list[str]:
        named = {} if family is None else {"family": family}
        found = self.ecs.list_tasks(cluster=self.cluster, desiredStatus="RUNNING", **named)
        return list(found["taskArns"])

    def remove(self) -> None:
        self.dynamodb.delete_table(TableName=self.table)
        if self.provisioned():
            self.functions.delete_provisioned_concurrency_config(
                FunctionName=FUNCTION, Qualifier=ALIAS
            )
        for client in (self.dynamodb, self.ecs, self.functions):
            client.close()

    def provisioned(self) -> int:
        try:
            found = self.functions.get_provisioned_concurrency_config(
                FunctionName=FUNCTION, Qualifier=ALIAS
            )
        except self.functions.exceptions.ProvisionedConcurrencyConfigNotFoundException:
            return 0
        return found["RequestedProvisionedConcurrentExecutions"]

    def on(self) -> tuple[int, int, int]:
        """Return (warm environments, learners with a GPU, learners without) that are on."""
        gpu, cpu = (len(self.tasks(family)) for family in (self.gpu_family, self.cpu_family))
        return self.provisioned(), gpu, cpu

    def heartbeat(self) -> tuple[float, float]:
        key = {"pk": {"S": "SCALER"}, "sk": {"S": "HEARTBEAT"}}
        item = self.dynamodb.get_item(TableName=self.table, Key=key)["Item"]
        return float(item["at"]["N"]), float(item["until"]["N"])

    def write_heartbeat(
        self, *, at: float, until: float, jobs: Mapping[str, float] | None = None
    ) -> None:
        covered = {} if jobs is None else {"jobs": {"M": {j: _number(t) for j, t in jobs.items()}}}
        key = {"pk": {"S": "SCALER"}, "sk": {"S": "HEARTBEAT"}}
        item: Any = {**key, "at": _number(at), "until": _number(until), **covered}
        self.dynamodb.put_item(TableName=self.table, Item=item)

    def look_of_the_switch(self, now: float) -> list[str]:
        """Run the dead-man switch once; return what it turned off."""
        switch = Switch(
            SwitchSettings(
                table=self.table,
                function=FUNCTION,
                qualifier=ALIAS,
                cluster=self.cluster,
                families=(self.cpu_family, self.gpu_family),
                silent_after_s=SILENT_AFTER_S,
            )
        )
        try:
            answer = watch(switch, now=now, silent_after_s=SILENT_AFTER_S)
        finally:
            switch.close()
        return sorted(name.partition(" (")[0] for name in answer["closed"])


def _number(time: float) -> dict[str, str]:
    return {"N": str(time)}


@dataclass
class LivingScaler:
    """A scaler and what users and a learner ask of it."""

    http: httpx.Client
    time: FakeTime

    def submit(self, *, most: int = 4, learner: str = "gpu") -> str:
        body = {"env_id": "CartPole-v1", "actors": {"min": 2, "max": most}, "learner": learner}
        response = self.http.post("/v1/jobs", json=body)
        assert response.status_code in (201, 202), response.text
        job_id = Job.model_validate_json(response.content).job_id
        while self.http.get(f"/v1/jobs/{job_id}").json()["status"] == "checking":
            pass
        return job_id

    def lease(self, job_id: str, kind: str = "gpu") -> Lease:
        """Lease a job as the learner that was started for it does."""
        self.time.settle()
        body = {"learner_id": f"of-{job_id}", "kind": kind, "job_id": job_id, "wait_s": 0}
        response = self.http.post("/v1/leases", json=body)
        assert response.status_code == 200, response.text
        self.time.settle()
        return Lease.model_validate_json(response.content)

    def beat(self, lease: Lease) -> None:
        assert self.http.put(f"/v1/leases/{lease.lease_id}").status_code == 200

    def open_round(self, lease: Lease) -> None:
        """Have the job's first round planned: from then on its time counts."""
        request = {"lease_id": lease.lease_id, "attempt": 0, "policy_version": 0}
        answer = self.http.post(f"/v1/jobs/{lease.job.job_id}/rounds/0", json=request)
        assert answer.status_code == 200, answer.text

    def finish(self, lease: Lease, *, status: str = "succeeded", why: str = "max_rounds") -> None:
        request = FinishRequest.model_validate(
            {"lease_id": lease.lease_id, "status": status, "stop_reason": why}
        )
        response = self.http.post(
            f"/v1/jobs/{lease.job.job_id}/finish", json=request.model_dump(mode="json")
        )
        assert response.status_code == 200, response.text

    def stop(self, job_id: str) -> None:
        assert self.http.post(f"/v1/jobs/{job_id}/stop").status_code == 202

    def job(self, job_id: str) -> Job:
        return Job.model_validate_json(self.http.get(f"/v1/jobs/{job_id}").content)

    def readiness(self) -> dict[str, object]:
        found: dict[str, object] = self.http.get("/readyz").json()
        return found


@contextmanager
def living_scaler(
    account: Account, folder: Path, cache_url: str, time: FakeTime, /, **changes: object
) -> Iterator[LivingScaler]:
    """Run a scaler on the account; it closes nothing when it ends, so its end is like a crash."""
    settings = Settings.model_validate(
        {
            "token": TOKEN,
            "database": folder / "nitro.sqlite3",
            "runs_dir": folder / "runs",
            "cache_url": cache_url,
            "lambda_endpoint_url": account.lambda_url,
            "provisioned_concurrency": 64,
            "ecs_cluster": account.cluster,
            "ecs_cpu_family": account.cpu_family,
            "ecs_subnets": ["subnet-1"],
            "ecs_security_group": "sg-1",
            "ecs_gpu_family": account.gpu_family,
            "ecs_gpu_subnets": ["subnet-1"],
            "ecs_gpu_provider": "FARGATE",  # moto has no machines that come for a task
            "most_gpu_learners": 3,
            "table": account.table,
            "shutdown_wait_s": 1,
            **changes,
        }
    )
    app = create_app(settings, now=time.now, alarm=time)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with serve(app) as url, httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        time.settle()
        yield LivingScaler(http, time)
