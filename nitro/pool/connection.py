"""The connections of an `ActorPool`: the API, its job's lease, and the trajectory cache.

The user's program needs no simulator and no learner here: with `api_url`, neither Gymnasium nor
torch is imported.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from nitro.client.aws_signature import AwsSignature
from nitro.client.client import NitroClient
from nitro.client.connection import signed_for
from nitro.errors import EXIT_FAILED, CommandError
from nitro.pool.stopping import as_errors
from nitro.settings import api_address, api_token, read_settings
from services.learner.own.cores import OwnCores
from services.learner.own.rollouts import OwnRollouts
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.authentication import CacheSettings
from shared.cache.client import TrajectoryCache
from shared.cache.connect_token import AwsCredentials
from shared.cache.connection import CacheError
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus
from shared.contracts.leases import Lease

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 60.0
"""How long calls to an unreachable API are retried."""
_LEASE_WAIT_S = 10.0
_OPEN: tuple[JobStatus, ...] = ("queued", "running")


class _CacheSettings(CacheSettings):
    model_config = SettingsConfigDict(env_prefix="NITRO_", frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open pool's connections."""

    client: NitroClient
    scaler: ScalerClient
    lease: HeldLease
    cache: TrajectoryCache
    job: Job
    own: OwnRollouts | None = None
    """Actors on the program's own cores; None without own actors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    url: str
    token: str | None
    sign_for: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Settings of actors on this machine."""


@contextmanager
def connected(
    spec: JobSpec,
    *,
    api_url: str | None,
    token: str | None,
    runs_dir: Path,
    processes: int | None,
    environment_packages: Sequence[str] | None,
) -> Iterator[Connection]:
    """Submit a pool's job and lease it; without a named API, start a local system.

    Raises:
        CommandError: The API or the cache cannot be reached, or the job was refused.
    """
    with ExitStack() as leaving:
        named = api_url or read_settings().api_url
        if named is None:
            address = leaving.enter_context(
                _local(spec, runs_dir, processes=processes, packages=environment_packages)
            )
        else:
            _require_no_local_options(processes, environment_packages)
            address = _remote(named, token, runs_dir)
        client = leaving.enter_context(
            NitroClient(address.url, address.token, sign_for=address.sign_for)
        )
        job = client.admitted(client.submit(spec))
        scaler, heartbeats = (leaving.enter_context(_scaler(address)) for _ in range(2))
        with as_errors():
            lease = scaler.lease(
                f"pool-{secrets.token_hex(6)}", wait_s=_LEASE_WAIT_S, job_id=job.job_id
            )
        if lease is None:
            raise CommandError(f"{job.job_id}: somebody else has the job", exit_code=EXIT_FAILED)
        held = leaving.enter_context(HeldLease(lease, heartbeats, threading.Event()))
        door = _CacheDoor.of(lease)
        cache = leaving.enter_context(door.opened())
        own = leaving.enter_context(door.own_cores(address.variables)).rollouts(
            lease.job, lease.lease_id
        )
        if own is not None:
            leaving.callback(own.leave)
        yield Connection(
            client=client, scaler=scaler, lease=held, cache=cache, job=lease.job, own=own
        )


def _scaler(address: _Address) -> ScalerClient:
    signature = None if address.sign_for is None else AwsSignature(address.sign_for)
    return ScalerClient(address.url, address.token, patience_s=_PATIENCE_S, signature=signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CacheDoor:
    """Address and credentials of the cache."""

    settings: CacheSettings
    sign: Callable[[], AwsCredentials] | None
    """Returns AWS credentials, which sign an IAM password; None without one."""

    @classmethod
    def of(cls, lease: Lease) -> Self:
        """Return the address and credentials of a job's cache.

        Raises:
            CommandError: The settings are wrong.
        """
        told = lease.cache_url if os.environ.get("NITRO_CACHE_URL") is None else None
        try:
            settings = (
                _CacheSettings() if told is None else _CacheSettings(cache_url=SecretStr(told))
            )
        except ValidationError as error:
            reasons = "; ".join(each["msg"] for each in error.errors(include_url=False))
            raise CommandError(f"NITRO_CACHE_URL and its login: {reasons}") from error
        sign = None
        if settings.cache_auth == "iam":
            from shared.service.aws_credentials import process_credentials

            sign = process_credentials()
        return cls(settings=settings, sign=sign)

    def client(self) -> TrajectoryCache:
        """Return a client; nothing is sent yet."""
        credentials = self.settings.cache_credentials(self.sign or _no_credentials)
        return TrajectoryCache(self.settings.cache_url.get_secret_value(), credentials=credentials)

    def opened(self) -> TrajectoryCache:
        """Return a client of the cache after it has answered.

        Raises:
            CommandError: It cannot be reached from here.
        """
        cache = self.client()
        try:
            cache.ping()
        except CacheError as error:
            cache.close()
            raise CommandError(
                f"{error}\nAn ActorPool reads what actors bring from the trajectory cache itself. "
                "Set NITRO_CACHE_URL to an address that works from here; on AWS, run inside the "
                "VPC of the deployment, as its cache has no other door",
                exit_code=EXIT_FAILED,
            ) from error
        return cache

    def own_cores(self, variables: Mapping[str, str]) -> OwnCores:
        """Return the program's own cores; no process is started yet."""
        url = self.settings.cache_url.get_secret_value()
        return OwnCores(
            connect_cache=self.client,
            most=None,
            variables={**variables, "NITRO_CACHE_URL": url},
            credentials=self.sign,
        )


def _no_credentials() -> AwsCredentials:
    raise AssertionError("only an IAM password is signed")


def _remote(url: str, token: str | None, runs_dir: Path) -> _Address:
    settings = read_settings()
    address = api_address(url, settings, runs_dir)
    opens = token or api_token(address, settings, runs_dir)
    return _Address(url=address, token=opens, sign_for=signed_for(address, settings))


def _require_no_local_options(processes: object, packages: object) -> None:
    for name, value in {"processes": processes, "environment_packages": packages}.items():
        if value is not None:
            raise CommandError(
                f"{name}: is for a local system that is started, but an API is named"
            )


@contextmanager
def _local(
    spec: JobSpec, runs_dir: Path, *, processes: int | None, packages: Sequence[str] | None
) -> Iterator[_Address]:
    """Use the folder's `nitro up`, or start cache, emulator and scaler for the block."""
    # Imported here: a program with an API's address does not need it.
    from nitro.local.own_environments import actor_variables, require_registered
    from nitro.local.state_folder import StateFolder
    from nitro.local.system import LocalSystem

    settings = read_settings()
    if StateFolder(runs_dir).is_served():
        _require_no_local_options(processes, packages)
        url = api_address(None, settings, runs_dir)
        yield _Address(url=url, token=api_token(url, settings, runs_dir))
        return
    variables = actor_variables(packages)
    require_registered(spec.env_id)
    system = LocalSystem(
        runs_dir,
        processes=processes,
        learners=0,
        own=bool(spec.actors.own),
        cache_url=settings.cache_address,
        actor_variables=variables,
    )
    with system:
        _end_left_over(system.api_url, system.token)
        yield _Address(url=system.api_url, token=system.token, variables=variables)
        system.close(at_once=True)  # the job has ended: there is no lease to return


def _end_left_over(url: str, token: str) -> None:
    """Stop external jobs of a program that was killed with its local system."""
    with NitroClient(url, token) as client:
        left = [job for status in _OPEN for job in client.every_job(status=status)]
        for job in left:
            if client.get(job.job_id).learner == "external":
                client.stop(job.job_id)
                _LOG.info("left-over job stopped", extra={"job": job.job_id})
