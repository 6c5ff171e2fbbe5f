"""When an actor's process ends, in real awslambdaric processes of a real emulator."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import RolloutTask
from shared.trajectory import codec
from tests.services.emulator.conftest import ROOT, RunningEmulator, start

Arrays = dict[str, NDArray[np.generic]]
MakePolicy = Callable[[int, int], tuple[Arrays, dict[str, str]]]
MakeTask = Callable[..., RolloutTask]

_ENVIRONMENTS = """
import ctypes, signal, threading
import gymnasium, numpy as np

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    trouble = None
    reward = 1.0

    def __init__(self, trouble=None):
        self.trouble = trouble
        if trouble == "constructor":
            threading.Event().wait()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.elapsed = 0
        if self.trouble == "reset":
            threading.Event().wait()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.elapsed += 1
        if self.elapsed > 1:
            if self.trouble == "alarm":
                signal.signal(signal.SIGALRM, lambda *_: None)
                signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
                threading.Event().wait()
            if self.trouble == "library":
                ctypes.PyDLL(None).pause()  # keeps the interpreter's lock
            if self.trouble == "raise":
                raise OSError("the simulator fell over")
        return np.zeros(2, np.float32), self.reward, self.elapsed == 4, False, {}

gymnasium.register("Line-v0", entry_point=Line)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "line_envs.py"
    path.write_text(_ENVIRONMENTS)
    return path


@pytest.fixture
def emulator(tmp_path: Path, package: Path, cache_url: str) -> Iterator[RunningEmulator]:
    running = start(
        tmp_path / "emulator",
        handler="functions.actor.handler.handler",
        function_name="nitro-actor",
        task_root=str(ROOT),
        variables={
            "NITRO_CACHE_URL": cache_url,
            "NITRO_ENVIRONMENT_PACKAGES": "line_envs",
            "NITRO_STEP_TIMEOUT_S": "2",
            "PYTHONPATH": os.pathsep.join([str(package.parent), *sys.path]),
        },
    )
    yield running
    running.process.terminate()
    running.close()


@pytest.fixture
def act(
    emulator: RunningEmulator,
    cache_url: str,
    discrete_policy: MakePolicy,
    make_task: MakeTask,
) -> Callable[..., Any]:
    """Invoke an actor with a task of a job; return the answer and the tail of the log."""
    jobs: set[str] = set()

    def invoke(job: str, **fields: Any) -> tuple[dict[str, Any], str]:
        if job not in jobs:
            jobs.add(job)
            with TrajectoryCache(cache_url) as cache:
                cache.publish_policy(job, 2, codec.encode(*discrete_policy(2, 2)))
        task = make_task("Line-v0", job_id=job, mode="evaluate", **fields)
        invoked = emulator.invoke(task.model_dump(mode="json"), name="nitro-actor:live")
        return invoked.payload, invoked.log

    return invoke


def new_job() -> str:
    return f"job-{uuid.uuid4().hex}"


def test_a_step_that_hangs_is_named_though_it_takes_the_alarm_and_the_next_process_is_new(
    act: Callable[..., Any],
) -> None:
    job = new_job()
    assert act(job)[0]["cold_start"]
    assert not act(job)[0]["cold_start"]
    hung, log = act(job, env_kwargs={"trouble": "alarm"})
    assert hung["errorType"] == "EnvironmentHungError"
    first, *frames = hung["errorMessage"].splitlines()
    assert first.startswith("Line-v0: no step or reset has ended for 2 s")
    assert any(frame.strip() == "threading.Event().wait()" for frame in frames)
    assert "EnvironmentHungError: Line-v0" in log
    assert act(job)[0]["cold_start"]


def test_code_that_keeps_the_interpreters_lock_is_ended_and_its_line_is_in_the_log(
    act: Callable[..., Any],
) -> None:
    answer, log = act(new_job(), env_kwargs={"trouble": "library"})
    assert answer["errorType"] == "Runtime.ExitError"
    assert "exit status 1" in answer["errorMessage"]
    (line,) = (n for n, text in enumerate(_ENVIRONMENTS.splitlines(), 1) if ".pause()" in text)
    assert f'line_envs.py", line {line} in step' in log


@pytest.mark.parametrize(
    ("trouble", "says"),
    [("constructor", "its constructor has not ended"), ("reset", "no step or reset has ended")],
)
def test_what_hangs_when_it_is_described_is_named(
    emulator: RunningEmulator, trouble: str, says: str
) -> None:
    task = {"mode": "describe", "env": {"env_id": "Line-v0", "env_kwargs": {"trouble": trouble}}}
    answer = emulator.invoke(task, name="nitro-actor:live").payload
    assert answer["errorType"] == "EnvironmentHungError"
    assert answer["errorMessage"].startswith(f"Line-v0: {says} for 2 s")


def test_the_process_ends_with_a_rollout_that_failed(act: Callable[..., Any]) -> None:
    job = new_job()
    failed, _ = act(job, env_kwargs={"trouble": "raise"})
    assert failed["errorType"] == "RolloutError"
    assert "OSError('the simulator fell over')" in failed["errorMessage"]
    assert act(job)[0]["cold_start"]


def test_a_new_job_or_lease_gets_a_changed_environment_and_a_running_one_keeps_its_own(
    act: Callable[..., Any], package: Path
) -> None:
    job = new_job()
    assert act(job, lease_hash="first")[0]["episode_returns"] == [4.0]
    package.write_text(_ENVIRONMENTS.replace("reward = 1.0", "reward = 10.25"))
    going_on = act(job, lease_hash="first", round=4)[0]
    assert (going_on["episode_returns"], going_on["cold_start"]) == ([4.0], False)
    resumed = act(job, lease_hash="second", round=5)[0]
    assert (resumed["episode_returns"], resumed["cold_start"]) == ([41.0], True)
    # Of another length: Python tells compiled files apart by size and whole seconds.
    package.write_text(_ENVIRONMENTS.replace("reward = 1.0", "reward = 1000.0"))
    assert act(new_job())[0]["episode_returns"] == [4000.0]
