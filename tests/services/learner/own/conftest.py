"""Own actors of a small environment of one's own that can hang, end or use up its process."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.learner.own.actors import OwnActors
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.trajectory import codec
from tests.functions.actor.conftest import policy_arrays, policy_metadata

_ENVIRONMENT = """
import os, signal, threading, pathlib
import gymnasium, numpy as np

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, trouble="", once=""):
        self.trouble, self.once = trouble, once

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        mark = pathlib.Path(os.environ["LINE_MARKS"]) / (self.once or "never")
        if self.trouble and not mark.exists():
            if self.once:
                mark.touch()
            if self.trouble == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "hung":
                threading.Event().wait()
            if self.trouble == "raise":
                raise OSError("the simulator fell over")
        print("environments may print")
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}

gymnasium.register("OwnLine-v0", entry_point=Line, max_episode_steps=50)
"""


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


@pytest.fixture
def variables(tmp_path: Path, cache_url: str) -> dict[str, str]:
    """Settings of own actors that have the environment."""
    (tmp_path / "own_line.py").write_text(_ENVIRONMENT)
    return {
        "NITRO_CACHE_URL": cache_url,
        "NITRO_ENVIRONMENT_PACKAGES": "own_line",
        "LINE_MARKS": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }


@pytest.fixture
def actors(variables: dict[str, str]) -> Iterator[OwnActors]:
    with OwnActors(2, variables=variables) as started:
        yield started


@pytest.fixture
def job(cache: TrajectoryCache) -> str:
    """A job whose policy of version 0 is in the cache."""
    return publish(cache, 2)


def publish(cache: TrajectoryCache, size: int) -> str:
    """Publish a policy for observations of a size; return the id of its job."""
    job_id = f"job-{uuid.uuid4().hex}"
    policy = codec.encode(policy_arrays(size, 2), policy_metadata(discrete=True))
    cache.publish_policy(job_id, 0, policy)
    return job_id


def task(
    job_id: str, index: int = 0, *, trouble: str = "", once: str = "", env_id: str = "OwnLine-v0"
) -> RolloutTask:
    """A task whose environment has some trouble, always or once."""
    kwargs = {"trouble": trouble, "once": once} if trouble else {}
    return RolloutTask(
        mode="sample",
        job_id=job_id,
        round=0,
        attempt=0,
        actor_index=index,
        policy_version=0,
        env=EnvironmentRef.model_validate({"env_id": env_id, "env_kwargs": kwargs}),
        steps=20,
        seed=index,
    )
