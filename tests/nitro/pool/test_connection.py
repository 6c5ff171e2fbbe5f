"""How a pool reaches its parts: without simulator or torch, and with errors that help."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from nitro.client.aws_signature import AwsSignature
from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from tests.e2e.runs import wait_finished
from tests.nitro.pool.pools import cartpole_net, pool_at

ROOT = Path(__file__).parents[3]
LIGHT = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError("not on a client: " + name)

sys.meta_path.insert(0, Nothing())
import numpy as np
import nitro

rng = np.random.default_rng(0)
weights = {{
    "0.weight": rng.standard_normal((8, 4)), "0.bias": np.zeros(8),
    "2.weight": rng.standard_normal((2, 8)), "2.bias": np.zeros(2),
}}
with nitro.ActorPool(
    "CartPole-v1", fragment=16, actors=2, budget_usd=1.0, api_url={url!r}, token={token!r}
) as pool:
    for _ in pool.rounds(2):
        batch = pool.collect(weights)
        assert batch.observations.shape == (16, 2, 4)
        assert sum(len(part.rewards) for part in batch.episodes()) == 32
print(pool.job_id)
"""
BLOCKED = ("gymnasium", "mujoco", "ale_py", "torch", "fastapi", "boto3", "rich", "typer", "yaml")
HOLDING = """
import nitro
import sys
import time

weights = {{"0.weight": [[0.0] * 4] * 2, "0.bias": [0.0] * 2}}
with nitro.ActorPool(
    "CartPole-v1", fragment=16, actors=2, budget_usd=1.0, api_url={url!r}, token={token!r}
) as pool:
    pool.collect(weights)
    print(pool.job_id, flush=True)
    time.sleep(600)
"""


def program(source: str, system: LocalSystem, **more: object) -> subprocess.Popen[str]:
    text = source.format(url=system.api_url, token=system.token, **more)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_client_needs_no_simulator_no_torch_and_no_framework(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    with program(LIGHT, shared_system, blocked=set(BLOCKED)) as running:
        told, _ = running.communicate()
    assert running.returncode == 0
    assert client.get(told.strip()).status == "succeeded"


def test_a_client_that_is_killed_loses_its_job_and_nothing_stays_on(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    with program(HOLDING, shared_system) as running:
        assert running.stdout is not None
        job_id = running.stdout.readline().strip()
        assert client.get(job_id).status == "running"
        running.kill()
    job = wait_finished(client, job_id)
    assert (job.status, job.stop_reason) == ("stopped", "client_gone")
    assert client.cost(job_id).reserved_usd == 0.0


def test_a_pool_with_nothing_named_starts_the_system_and_ends_it(tmp_path: Path) -> None:
    from nitro.pool.actor_pool import ActorPool

    with ActorPool("CartPole-v1", fragment=16, actors=2, runs_dir=tmp_path) as pool:
        assert pool.collect(cartpole_net()).num_columns == 2
        url = pool._open._to.scaler._url
    assert pool.cost_usd > 0
    with NitroClient(url, None) as gone, pytest.raises(CommandError, match="no answer"):
        gone.get(pool.job_id)


def test_a_cache_that_cannot_be_reached_is_told_with_what_to_do(
    shared_system: LocalSystem, client: NitroClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NITRO_CACHE_URL", "redis://127.0.0.1:1/0")
    with (
        pytest.raises(CommandError, match=r"(?s)127.0.0.1:1.*inside the VPC"),
        pool_at(shared_system),
    ):
        pass


def test_every_call_of_a_pool_is_signed_where_the_api_wants_that(
    shared_system: LocalSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str] = []
    sign = AwsSignature.auth_flow

    def noting(
        self: AwsSignature, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        assert request.headers["X-Nitro-Token"] == shared_system.token
        assert "Authorization" not in request.headers
        signed.append(f"{request.method} {request.url.path}")
        return sign(self, request)

    monkeypatch.setattr(AwsSignature, "auth_flow", noting)
    monkeypatch.setenv("NITRO_SIGN_FOR", "eu-north-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-a-role")
    with pool_at(shared_system) as pool:
        pool.collect(cartpole_net())
    path = f"POST /v1/jobs/{pool.job_id}"
    assert {"POST /v1/leases", f"{path}/rounds/0", f"{path}/finish"} <= {*signed}


def test_what_is_for_a_local_system_is_refused_with_an_api(shared_system: LocalSystem) -> None:
    with (
        pytest.raises(CommandError, match="processes: is for a local system"),
        pool_at(shared_system, processes=2),
    ):
        pass
