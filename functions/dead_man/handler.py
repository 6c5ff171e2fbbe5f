"""The dead-man switch: a Lambda function that turns off what nobody is left to turn off.

Provisioned concurrency and the learners' machines cost money until somebody ends them. That is the
scaler's work; this function, run every minute by a schedule, does it when the scaler has been
silent for too long, when jobs ran longer than they may, or when no job is there at all. The learner
of each kind is judged by the jobs of its kind alone. It reads the scaler's heartbeat, decides, and
turns off; with nothing on it changes nothing, and repeating it is harmless. It is one file on the
SDK that Lambda's Python runtime brings along, so that whatever breaks the services does not break
it.

A heartbeat that cannot be read is an error, which the function's alarm reports, and no reason to
end training: only a heartbeat that says so, or is missing, is.
"""

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)

_HEARTBEAT = {"pk": {"S": "SCALER"}, "sk": {"S": "HEARTBEAT"}}
_DEFAULT_SILENCE_S = 600.0
_NO_CONFIGURATION = "ProvisionedConcurrencyConfigNotFoundException"
_CLIENT = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})


class SettingsError(ValueError):
    """A variable is missing or makes no sense; the message names it."""


class SwitchError(RuntimeError):
    """Something could not be turned off; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the switch watches and what it turns off."""

    table: str
    """`NITRO_TABLE`: DynamoDB table that holds the heartbeat."""
    function: str
    """`NITRO_LAMBDA_FUNCTION`: the actor function."""
    qualifier: str
    """`NITRO_LAMBDA_QUALIFIER`: its alias, which provisioned concurrency is on."""
    cluster: str
    """`NITRO_ECS_CLUSTER`: cluster of the learners' services."""
    gpu_service: str | None
    """`NITRO_ECS_SERVICE`: service of the learner with a GPU; None where there is none."""
    cpu_service: str
    """`NITRO_ECS_CPU_SERVICE`: service of the learner without one."""
    silent_after_s: float
    """`NITRO_SILENT_AFTER_S`: how old a heartbeat may be."""

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> "Settings":
        """Return the settings in these environment variables.

        Raises:
            SettingsError: One is missing, or the time is no positive number.
        """
        text = variables.get("NITRO_SILENT_AFTER_S", str(_DEFAULT_SILENCE_S))
        try:
            silent_after_s = float(text)
        except ValueError:
            silent_after_s = 0.0
        if not 0 < silent_after_s < float("inf"):
            raise SettingsError(f"NITRO_SILENT_AFTER_S: {text!r} is no positive number of seconds")
        return cls(
            table=_required(variables, "NITRO_TABLE"),
            function=_required(variables, "NITRO_LAMBDA_FUNCTION"),
            qualifier=_required(variables, "NITRO_LAMBDA_QUALIFIER"),
            cluster=_required(variables, "NITRO_ECS_CLUSTER"),
            gpu_service=variables.get("NITRO_ECS_SERVICE"),
            cpu_service=_required(variables, "NITRO_ECS_CPU_SERVICE"),
            silent_after_s=silent_after_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The scaler's last sign of life, in Unix seconds."""

    at: float
    until: float
    """Until when any of its jobs may keep environments warm; 0 when it has none."""
    gpu_until: float
    """Until when its jobs may keep the learner with a GPU on; 0 when none of them wants it."""
    cpu_until: float
    """The same of the learner without one."""


def reason_to_close(
    heartbeat: Heartbeat | None, until: float, *, now: float, silent_after_s: float
) -> str | None:
    """Return why what may be on `until` then should be off, None while the scaler has it in hand.

    Without a heartbeat `until` says nothing.
    """
    if heartbeat is None:
        return "no scaler has ever given a sign of life"
    silence_s = now - heartbeat.at
    if silence_s > silent_after_s:
        return f"the scaler has been silent for {silence_s:.0f} s, {silent_after_s:.0f} are allowed"
    if until == 0:
        return "no job wants it"
    if now > until:
        return f"jobs are {now - until:.0f} s beyond the longest they may take"
    return None


class Switch:
    """Reads the heartbeat and turns capacity off."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dynamodb = boto3.client("dynamodb", config=_CLIENT)
        self._lambda = boto3.client("lambda", config=_CLIENT)
        self._ecs = boto3.client("ecs", config=_CLIENT)

    def heartbeat(self) -> Heartbeat | None:
        """Return the newest heartbeat, None when there was never one.

        Raises:
            SwitchError: The table cannot be read, or holds something else.
        """
        try:
            answer = self._dynamodb.get_item(
                TableName=self._settings.table, Key=_HEARTBEAT, ConsistentRead=True
            )
            item = answer.get("Item")
            if item is None:
                return None
            # A scaler of an earlier version writes `until` alone, for all that may be on.
            until = item["until"]
            return Heartbeat(
                at=float(item["at"]["N"]),
                until=float(until["N"]),
                gpu_until=float(item.get("gpu_until", until)["N"]),
                cpu_until=float(item.get("cpu_until", until)["N"]),
            )
        except (BotoCoreError, ClientError, KeyError, ValueError) as error:
            raise SwitchError(f"heartbeat in table {self._settings.table!r}: {error!r}") from error

    def close_provisioned(self) -> bool:
        """Delete the alias's provisioned concurrency; return whether there was any."""
        target = {"FunctionName": self._settings.function, "Qualifier": self._settings.qualifier}
        try:
            self._lambda.get_provisioned_concurrency_config(**target)
            self._lambda.delete_provisioned_concurrency_config(**target)
        except ClientError as error:
            if error.response["Error"]["Code"] == _NO_CONFIGURATION:
                return False
            raise
        return True

    def close_gpu_learner(self) -> bool:
        """Turn off the learner with a GPU; return whether it was on."""
        service = self._settings.gpu_service
        return service is not None and self._close_service(service)

    def close_cpu_learner(self) -> bool:
        """Turn off the learner without one; return whether it was on."""
        return self._close_service(self._settings.cpu_service)

    def _close_service(self, service: str) -> bool:
        """Set a service's desired count to 0; return whether it was more."""
        cluster = self._settings.cluster
        found = self._ecs.describe_services(cluster=cluster, services=[service])["services"]
        active = [s for s in found if s["status"] == "ACTIVE"]
        if not active:
            raise SwitchError(f"there is no active ECS service {service!r} in {cluster!r}")
        if active[0]["desiredCount"] == 0:
            return False
        self._ecs.update_service(cluster=cluster, service=service, desiredCount=0)
        return True

    def close(self) -> None:
        """Close idle connections."""
        for client in (self._dynamodb, self._lambda, self._ecs):
            client.close()


def watch(switch: Switch, *, now: float, silent_after_s: float) -> dict[str, Any]:
    """Look once; return what was turned off, each with why.

    Raises:
        SwitchError: The heartbeat cannot be read, or something could not be turned off; the rest
            was tried all the same.
    """
    heartbeat = switch.heartbeat()
    all_until = (0.0,) * 3
    if heartbeat is not None:
        all_until = (heartbeat.until, heartbeat.gpu_until, heartbeat.cpu_until)
    parts = {
        "provisioned concurrency": switch.close_provisioned,
        "gpu learner": switch.close_gpu_learner,
        "cpu learner": switch.close_cpu_learner,
    }
    closed: dict[str, str] = {}
    failed: list[str] = []
    for (name, close), until in zip(parts.items(), all_until, strict=True):
        reason = reason_to_close(heartbeat, until, now=now, silent_after_s=silent_after_s)
        if reason is None:
            continue
        try:
            if close():
                closed[name] = reason
                _LOG.warning("turned off: %s, because %s", name, reason)
        except (BotoCoreError, ClientError, SwitchError) as error:
            failed.append(f"{name} ({reason}): {error}")
    if failed:
        raise SwitchError(f"not turned off: {'; '.join(failed)}")
    return {"closed": closed}


def handler(event: object, context: object) -> dict[str, Any]:
    """Be called by the schedule; what it sends is of no interest."""
    del event, context
    settings = Settings.read(os.environ)
    switch = Switch(settings)
    try:
        return watch(switch, now=time.time(), silent_after_s=settings.silent_after_s)
    finally:
        switch.close()


def _required(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "").strip()
    if not value:
        raise SettingsError(f"{name} is not set")
    return value
