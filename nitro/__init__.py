"""Train RL agents: one learner, and as many actors as each round needs.

    import nitro

    run = nitro.train("CartPole-v1", total_steps=50_000, seed=1)
    print(run.evaluate(episodes=20))
    run.plot()
    action = run.policy.act(observation)
    best = nitro.load("runs/cartpole-v1-3f2a", checkpoint="best")

Everything runs on this machine, unless `api_url=` names a deployment. What a person can act on is
raised as `CommandError`: a wrong field, a failed job, a missing checkpoint.

The import takes a moment only: names are loaded when they are first used, torch never.
"""

import importlib
from typing import TYPE_CHECKING

from nitro.shadowed import require_own_packages

if TYPE_CHECKING:
    from nitro.client.client import NitroClient as Client
    from nitro.errors import CommandError
    from nitro.local.system import LocalSystem
    from nitro.pool.actor_pool import ActorPool
    from nitro.pool.batch import Batch
    from nitro.pool.curvature import measure_curvature
    from nitro.pool.policy import Policy, PolicyNotSupportedError
    from nitro.pool.policy_maps import PolicyMap
    from nitro.pool.stopping import PoolStopped
    from nitro.python.run import Run, load, load_runs
    from nitro.python.sweep import Sweep, load_sweep, sweep
    from nitro.python.training import train
    from nitro.runs.evaluate import EvaluationReport
    from shared.contracts.job_spec import JobSpec
    from shared.contracts.rounds import RoundLine

__all__ = [
    "ActorPool",
    "Batch",
    "Client",
    "CommandError",
    "EvaluationReport",
    "JobSpec",
    "LocalSystem",
    "Policy",
    "PolicyMap",
    "PolicyNotSupportedError",
    "PoolStopped",
    "RoundLine",
    "Run",
    "Sweep",
    "load",
    "load_runs",
    "load_sweep",
    "measure_curvature",
    "sweep",
    "train",
]

_HOMES = {
    "ActorPool": "nitro.pool.actor_pool:ActorPool",
    "Batch": "nitro.pool.batch:Batch",
    "Client": "nitro.client.client:NitroClient",
    "CommandError": "nitro.errors:CommandError",
    "EvaluationReport": "nitro.runs.evaluate:EvaluationReport",
    "JobSpec": "shared.contracts.job_spec:JobSpec",
    "LocalSystem": "nitro.local.system:LocalSystem",
    "Policy": "nitro.pool.policy:Policy",
    "PolicyMap": "nitro.pool.policy_maps:PolicyMap",
    "PolicyNotSupportedError": "nitro.pool.policy:PolicyNotSupportedError",
    "PoolStopped": "nitro.pool.stopping:PoolStopped",
    "RoundLine": "shared.contracts.rounds:RoundLine",
    "Run": "nitro.python.run:Run",
    "Sweep": "nitro.python.sweep:Sweep",
    "load": "nitro.python.run:load",
    "load_runs": "nitro.python.run:load_runs",
    "load_sweep": "nitro.python.sweep:load_sweep",
    "measure_curvature": "nitro.pool.curvature:measure_curvature",
    "sweep": "nitro.python.sweep:sweep",
    "train": "nitro.python.training:train",
}
"""Where each name is, as `module:name`."""

require_own_packages()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: object = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
