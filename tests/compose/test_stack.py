"""The whole system in containers: it trains, keeps to itself, survives, and leaves no trace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from nitro.client.client import NitroClient
from shared.contracts.job_spec import JobSpec
from tests.compose import docker
from tests.compose.images import inspect
from tests.compose.stack import SERVICES, Stack
from tests.compose.waiting import PATIENCE_S, has_ended, wait_for, wait_job, wait_ready
from tests.compose.wheelhouse import ROOT
from tests.e2e.runs import final_weights, tiny, tiny_search
from tests.patience import ANSWER_S

pytestmark = pytest.mark.compose

NUM_ROUNDS = 40
STEPS = 2048


def wait_rounds(client: NitroClient, job_id: str, num_rounds: int) -> None:
    job = wait_job(client, job_id, lambda job: has_ended(job) or job.progress.rounds >= num_rounds)
    assert not has_ended(job), f"{job.status} after {job.progress.rounds} rounds: {job.error}"


def kill_and_wait_for_restart(stack: Stack, service: str) -> None:
    before = stack.restarts(service)
    stack.kill(service)
    wait_for(
        f"Docker to start {service} again",
        lambda: stack.restarts(service) > before or None,
    )


def spec() -> JobSpec:
    return tiny(
        seed=11,
        steps_per_actor=STEPS,
        scaling={"policy": "fixed", "num_actors": 8},
        stop={"max_rounds": NUM_ROUNDS},
        evaluation={"every_rounds": 0},
    )


@pytest.fixture(scope="module")
def trained(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Id of a job that `nitro train` submitted over REST and followed to its end."""
    folder = tmp_path_factory.mktemp("cli")
    file = folder / "job.json"
    file.write_text(spec().model_dump_json(), encoding="utf-8")
    wait_ready(stack.api_url)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nitro.cli.main", "train", "--json", "--spec", str(file)),
            *("--api-url", stack.api_url, "--runs-dir", str(folder)),
        ],
        env={**os.environ, "NITRO_TOKEN_FILE": str(stack.token_file)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{stack.logs()}"
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["rounds"]) == ("succeeded", NUM_ROUNDS)
    assert summary["env_steps"] == NUM_ROUNDS * 8 * STEPS
    return str(summary["job_id"])


def test_cartpole_trains_over_rest_to_its_end_and_leaves_a_run_folder(
    stack: Stack, trained: str, tmp_path: Path
) -> None:
    stack.copy_run(trained, tmp_path)
    written = {path.name for path in (tmp_path / trained).iterdir()}
    assert {"job.json", "rounds.jsonl", "ledger.jsonl", "checkpoints"} <= written


def test_an_actor_the_scaler_and_the_learner_are_killed_and_the_job_ends_as_if_nothing_had_been(
    stack: Stack, trained: str, tmp_path: Path
) -> None:
    with stack.client() as client:
        job_id = client.submit(spec()).job_id
        for num_rounds, victim in ((3, "actor"), (12, "scaler"), (22, "learner")):
            wait_rounds(client, job_id, num_rounds)
            kill_and_wait_for_restart(stack, victim)
        job = wait_job(client, job_id, has_ended)
    assert (job.status, job.error, job.progress.rounds) == ("succeeded", None, NUM_ROUNDS), (
        stack.logs()
    )
    stack.copy_run(trained, tmp_path)
    stack.copy_run(job_id, tmp_path)
    assert final_weights(tmp_path, job_id) == final_weights(tmp_path, trained)


def test_jobs_of_both_kinds_train_side_by_side_each_on_its_learner(stack: Stack) -> None:
    kinds = {"gpu": tiny(learner="gpu"), "cpu": tiny(learner="cpu", warm="reuse")}
    with stack.client() as client:
        ids = {kind: client.submit(spec).job_id for kind, spec in kinds.items()}
        jobs = {kind: wait_job(client, job_id, has_ended) for kind, job_id in ids.items()}
        prices = {
            kind: {x.unit_price_usd for x in client.every_line(job_id) if x.item == "learner"}
            for kind, job_id in ids.items()
        }
        bills = {kind: client.cost(job_id).by_item for kind, job_id in ids.items()}
        launches = [record.launches for record in client.every_round(ids["cpu"])]
    for kind, job in jobs.items():
        assert (job.status, job.error, job.learner) == ("succeeded", None, kind)
    assert [kind for kind in kinds if "provisioned_concurrency" in bills[kind]] == ["gpu"]
    assert [counts.cold_starts for counts in launches if counts] == [0] * 4  # used again
    for kind, service in zip(kinds, ("learner", "cpu-learner"), strict=True):
        (container,) = stack.containers(service)
        log = docker.said("docker", "logs", container)
        assert ids[kind] in log
        assert not [other for other in kinds if other != kind and ids[other] in log]
    assert len(prices["gpu"]) == len(prices["cpu"]) == 1
    assert prices["gpu"].pop() > 5 * prices["cpu"].pop()


def test_a_job_learns_on_functions(stack: Stack, tmp_path: Path) -> None:
    spec = tiny(env_id="Pendulum-v1", learner="functions", learner_functions={"slices": 4})
    with stack.client() as client:
        job = wait_job(client, client.submit(spec).job_id, has_ended)
        items = client.cost(job.job_id).by_item
    assert (job.status, job.error, job.learner) == ("succeeded", None, "cpu")
    assert items["gradient_requests"] > 0.0
    stack.copy_run(job.job_id, tmp_path)
    lines = (tmp_path / job.job_id / "rounds.jsonl").read_text().splitlines()
    results = [result for line in lines if (result := json.loads(line)["result"])]
    counts = [result["gradients"] for result in results]
    # On a busy machine a gradient may be older than the bound.
    assert all(c["used"] > 0 and c["used"] + c["stale"] == c["asked"] == 8 for c in counts), counts


def test_a_search_trains_in_containers(stack: Stack) -> None:
    with stack.client() as client:
        job = wait_job(client, client.submit(tiny_search()).job_id, has_ended)
    assert (job.status, job.error, job.learner) == ("succeeded", None, "cpu")
    assert job.progress.rounds == 3
    assert job.progress.last_return is not None


def test_more_actor_containers_are_more_execution_environments(stack: Stack) -> None:
    stack.up(actors=3)
    source = (
        "import json, urllib.request as u; "
        "token = open('/run/secrets/emulator_token').read(); "
        "stats = 'http://127.0.0.1:9000/emulator/stats'; "
        "request = u.Request(stats, headers={'Authorization': 'Bearer ' + token}); "
        "print(json.load(u.urlopen(request))['environments'])"
    )

    def three() -> bool | None:
        counts = json.loads(stack.python("emulator", source).replace("'", '"'))
        return sum(counts.values()) == 3 or None

    assert wait_for("three environments", three)


def test_an_actor_reaches_the_cache_and_the_emulator_and_nothing_else(stack: Stack) -> None:
    elsewhere = [("192.0.2.1", 443), ("8.8.8.8", 53)]
    for service, port in (("scaler", 8080), ("learner", 8081), ("cpu-learner", 8081)):
        networks = inspect(stack.containers(service)[0])["NetworkSettings"]["Networks"]
        elsewhere += [(network["IPAddress"], port) for network in networks.values()]
    source = f"""
import socket
from concurrent.futures import ThreadPoolExecutor
def reached(address):
    try:
        socket.create_connection(address, timeout=3).close()
    except OSError:
        return False
    return True
allowed, elsewhere = [("redis", 6379), ("emulator", 9001)], {elsewhere!r}
with ThreadPoolExecutor(16) as pool:  # each of them waits for its time-out
    found = dict(zip(allowed + elsewhere, pool.map(reached, allowed + elsewhere)))
print([a for a in allowed if not found[a]] + [a for a in elsewhere if found[a]])
"""
    assert stack.python("actor", source) == "[]"


def test_the_token_is_in_no_log_and_in_nothing_docker_shows(stack: Stack, trained: str) -> None:
    assert stack.token not in stack.logs()
    for service in SERVICES:
        for container in stack.containers(service):
            assert stack.token not in docker.run("docker", "inspect", container)


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_is_locked_up(stack: Stack, service: str) -> None:
    for container in stack.containers(service):
        host = inspect(container)["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert host["Memory"] > 0
        assert host["NanoCpus"] > 0
        bindings = [b for bound in (host["PortBindings"] or {}).values() for b in bound]
        assert all(binding["HostIp"] == "127.0.0.1" for binding in bindings)
    assert stack.execute(service, "id", "-u").strip() == "10001"


def test_without_the_token_nothing_is_told(stack: Stack) -> None:
    assert httpx.get(f"{stack.api_url}/v1/jobs", timeout=ANSWER_S).status_code == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert httpx.get(f"{stack.api_url}/v1/jobs", headers=wrong, timeout=ANSWER_S).status_code == 401


def test_down_leaves_nothing(stack: Stack) -> None:
    stack.down()
    for kind in ("container", "volume", "network"):
        assert docker.labelled(kind, stack.project) == []
