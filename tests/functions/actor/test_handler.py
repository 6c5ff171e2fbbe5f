"""The Lambda function in a process of its own, as the runtime imports it."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from numpy.typing import NDArray

from shared.cache.client import TrajectoryCache
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.trajectory import codec

Arrays = dict[str, NDArray[np.generic]]
MakePolicy = Callable[[int, int], tuple[Arrays, dict[str, str]]]
MakeTask = Callable[..., RolloutTask]

# Imports the handler as Lambda does, hands it one event per line and writes one reply per line.
_RUNTIME = """
import json, sys
from functions.actor.handler import handler
for line in sys.stdin:
    try:
        reply = {"ok": handler(json.loads(line), None)}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(reply) + "\\n")
unwanted = {"torch", "fastapi", "boto3", "botocore", "matplotlib", "scipy"} & set(sys.modules)
sys.exit(f"imported {unwanted}" if unwanted else 0)
"""

# Nothing of this process's own environment gets in but where to find Python and the sources.
_PROCESS = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)}


def _replies(
    events: list[object], *, folder: Path | None = None, **environment: str
) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", _RUNTIME],
        input="".join(json.dumps(event) + "\n" for event in events),
        env=_PROCESS | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def job(cache_url: str, continuous_policy: MakePolicy) -> str:
    job_id = f"job-{uuid.uuid4().hex}"
    with TrajectoryCache(cache_url) as cache:
        cache.publish_policy(job_id, 2, codec.encode(*continuous_policy(3, 1)))
    return job_id


def test_events_are_answered_in_one_process_one_after_the_other(
    cache_url: str, job: str, make_task: MakeTask
) -> None:
    describe = {"mode": "describe", "env": {"env_id": "Pendulum-v1"}}
    sample = make_task("Pendulum-v1", job_id=job, steps=30).model_dump(mode="json")
    evaluate = sample | {"mode": "evaluate"}
    replies = _replies(
        [sample, evaluate, sample, describe, sample | {"policy_version": 9}],
        NITRO_CACHE_URL=cache_url,
    )
    reports = [ActorReport.model_validate_json(json.dumps(reply["ok"])) for reply in replies[:3]]
    assert [report.outcome for report in reports] == ["stored", "stored", "duplicate"]
    assert [report.cold_start for report in reports] == [True, False, False]
    assert [report.steps for report in reports] == [30, 200, 30]
    spec = EnvironmentSpec.model_validate_json(json.dumps(replies[3]["ok"]))
    assert spec.max_episode_steps == 200
    assert replies[4]["error"].startswith("PolicyGoneError: policy version 9 of job")


def test_the_first_event_alone_finds_a_process_cold_whatever_it_asks_for(
    cache_url: str, job: str, make_task: MakeTask
) -> None:
    sample = make_task("Pendulum-v1", job_id=job).model_dump(mode="json")
    for first in ({"mode": "describe", "env": {"env_id": "Pendulum-v1"}}, {"mode": "explode"}):
        *_, reply = _replies([first, sample], NITRO_CACHE_URL=cache_url)
        assert not reply["ok"]["cold_start"]


def test_a_process_started_ahead_of_the_call_is_not_cold(
    cache_url: str, job: str, make_task: MakeTask
) -> None:
    (reply,) = _replies(
        [make_task("Pendulum-v1", job_id=job).model_dump(mode="json")],
        NITRO_CACHE_URL=cache_url,
        AWS_LAMBDA_INITIALIZATION_TYPE="provisioned-concurrency",
    )
    assert not reply["ok"]["cold_start"]


def test_a_ping_holds_its_environment_needs_no_cache_and_tells_whether_there_was_one() -> None:
    ping = {"mode": "ping", "hold_s": 0.2}
    began = time.monotonic()
    replies = _replies([ping, ping], NITRO_CACHE_URL="redis://127.0.0.1:1")
    assert time.monotonic() - began >= 0.4
    assert [reply["ok"] for reply in replies] == [{"cold_start": True}, {"cold_start": False}]
    (refused,) = _replies([ping | {"hold_s": 61}], NITRO_CACHE_URL="redis://127.0.0.1:1")
    assert "ping.hold_s: " in refused["error"]


def test_a_process_connects_before_its_first_event_and_a_ping_keeps_the_connection(
    cache_url: str,
) -> None:
    with redis.Redis.from_url(cache_url) as server:

        def pings() -> int:
            told: dict[str, dict[str, int]] = server.info("commandstats")
            return told.get("cmdstat_ping", {"calls": 0})["calls"]

        before = pings()
        _replies([], NITRO_CACHE_URL=cache_url)
        assert pings() == before + 1
        _replies([{"mode": "ping", "hold_s": 0}], NITRO_CACHE_URL=cache_url)
        assert pings() == before + 3


def test_events_that_are_no_tasks_are_refused_before_anything_is_done(
    make_task: MakeTask,
) -> None:
    task = make_task("Pendulum-v1").model_dump(mode="json")
    refusals = {
        "event of ": task | {"job_id": "x" * 5000},
        "sample.steps: ": task | {"steps": 0},
        "sample.extra: Extra inputs are not permitted": task | {"extra": 1},
        "sample.env.env_id: ": task | {"env": {"env_id": "os:system"}},
        "sample.seed: ": task | {"steps": 0, "seed": "11"},  # after the first that is wrong
        "'explode' found using 'mode'": task | {"mode": "explode"},
        "event: ": [],
        "event: Unable to extract tag": {},
        "Invalid JSON": {"mode": "\ud800"},
    }
    # Nothing listens at this address: a refusal must not need the cache.
    replies = _replies(list(refusals.values()), NITRO_CACHE_URL="redis://127.0.0.1:1")
    for expected, reply in zip(refusals, replies, strict=True):
        assert reply["error"].startswith("TaskRefusedError: ")
        assert expected in reply["error"]


def test_an_event_may_have_4096_bytes_of_compact_utf8() -> None:
    def event(num_bytes: int) -> dict[str, object]:
        kwargs = {f"a{i}": "ü" * 120 for i in range(16)}
        env: dict[str, object] = {"env_id": "Pendulum-v1", "env_kwargs": kwargs}
        made: dict[str, object] = {"mode": "describe", "env": env}
        compact = json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode()
        kwargs["a0"] += "x" * (num_bytes - len(compact))
        return made

    fits, too_large = _replies([event(4096), event(4097)], NITRO_CACHE_URL="redis://127.0.0.1:1")
    assert fits["error"].startswith("UnsupportedEnvironment: ")
    assert too_large["error"].startswith("TaskRefusedError: event of 4097 bytes, at most 4096")


def test_an_unreachable_cache_is_named_without_its_password(make_task: MakeTask) -> None:
    (reply,) = _replies(
        [make_task("Pendulum-v1").model_dump(mode="json")],
        NITRO_CACHE_URL="redis://actor:hunter2@127.0.0.1:1",
    )
    assert reply["error"].startswith(
        "CacheUnreachableError: trajectory cache at redis://127.0.0.1:1"
    )
    assert "hunter2" not in reply["error"]


def test_packages_of_ones_own_are_imported_once_at_start(tmp_path: Path) -> None:
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine/Cart-v0', entry_point=CartPoleEnv, max_episode_steps=9)\n"
        "open('imports', 'a').write('x')\n"
    )
    task = {"mode": "describe", "env": {"env_id": "Mine/Cart-v0"}}
    known, again, unknown = _replies(
        [task, task, {"mode": "describe", "env": {"env_id": "Mine/Other-v0"}}],
        NITRO_CACHE_URL="redis://127.0.0.1:1",
        NITRO_ENVIRONMENT_PACKAGES="my_envs",
        PYTHONPATH=f"{tmp_path}:{_PROCESS['PYTHONPATH']}",
        folder=tmp_path,
    )
    assert known == again
    assert known["ok"]["max_episode_steps"] == 9
    assert "did you mean Mine/Cart-v0" in unknown["error"]
    assert (tmp_path / "imports").read_text() == "x"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NITRO_CACHE_URL": "http://nowhere"}, "NITRO_CACHE_URL is malformed"),
        (
            {"NITRO_CACHE_URL": "redis://h:1", "NITRO_ENVIRONMENT_PACKAGES": "my envs/x"},
            "'envs/x' is no name of a Python package",
        ),
        (
            {"NITRO_CACHE_URL": "redis://h:1", "NITRO_ENVIRONMENT_PACKAGES": "no_such_envs"},
            r"the environment package 'no_such_envs' \(NITRO_ENVIRONMENT_PACKAGES\) cannot be",
        ),
    ],
)
def test_wrong_settings_fail_at_start(environment: dict[str, str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        _replies([], folder=None, **environment)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_matrix_products_run_in_one_thread_on_any_machine() -> None:
    # Split among threads they round differently, and so would the actions.
    count = (
        "import os, functions.actor.handler, numpy as np; "
        "np.ones((512, 512)) @ np.ones((512, 512)); "
        "raise SystemExit(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", count],
        env=_PROCESS | {"NITRO_CACHE_URL": "redis://127.0.0.1:1"},
        check=False,
    )
    assert done.returncode == 1
