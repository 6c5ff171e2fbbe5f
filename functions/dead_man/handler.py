"""The dead-man switch: a Lambda function that turns capacity off when the scaler cannot.

Provisioned concurrency and the learners' tasks cost money until they are ended. The scaler normally
ends them. This function runs every minute and does so if the scaler has been silent for too long,
if jobs exceed their limits, or if there is no job. Each learner's task is judged by its own job.
The function reads the scaler's heartbeat, decides, and turns off; repeating it is harmless. It is
one file that uses only the SDK of Lambda's Python runtime, so that failures of the services do not
affect it.

An unreadable heartbeat is an error for the function's alarm, but no reason to end training; only a
missing heartbeat, or one that says so, is.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)

_HEARTBEAT = {"pk": {"S": "SCALER"}, "sk": {"S": "HEARTBEAT"}}
_DEFAULT_SILENCE_S = 600.0
_NO_CONFIGURATION = "ProvisionedConcurrencyConfigNotFoundException"
_MAX_REASON = 255
_CLIENT = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})


class SettingsError(ValueError):
    """A variable is missing or invalid; the message names it."""


class SwitchError(RuntimeError):
    """A resource could not be turned off; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The switch's heartbeat table and its targets."""

    table: str
    """`NITRO_TABLE`: DynamoDB table that holds the heartbeat."""
    function: str
    """`NITRO_LAMBDA_FUNCTION`: the actor function."""
    qualifier: str
    """`NITRO_LAMBDA_QUALIFIER`: its alias, which provisioned concurrency is on."""
    cluster: str
    """`NITRO_ECS_CLUSTER`: cluster of the learners' tasks."""
    families: tuple[str, ...]
    """`NITRO_ECS_CPU_FAMILY` and, where there are learners with a GPU, `NITRO_ECS_GPU_FAMILY`:
    every task of these is a learner's."""
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
            families=(
                _required(variables, "NITRO_ECS_CPU_FAMILY"),
                *filter(None, [variables.get("NITRO_ECS_GPU_FAMILY")]),
            ),
            silent_after_s=silent_after_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Time of the scaler's last heartbeat, in Unix seconds."""

    at: float
    until: float
    """Latest end of warm environments; 0 without jobs."""
    jobs: Mapping[str, float]
    """Latest end of each job's learner, by the job's id."""


def reason_to_close(
    heartbeat: Heartbeat | None, until: float, *, now: float, silent_after_s: float
) -> str | None:
    """Return why capacity with this `until` should be off; None while the scaler is in control.

    Without a heartbeat `until` says nothing.
    """
    if heartbeat is None:
        return "no scaler has ever written a heartbeat"
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
            # A scaler of an earlier version names no jobs, because it starts no tasks.
            jobs = item.get("jobs", {"M": {}})["M"]
            return Heartbeat(
                at=float(item["at"]["N"]),
                until=float(item["until"]["N"]),
                jobs={job_id: float(until["N"]) for job_id, until in jobs.items()},
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

    def tasks(self) -> list[tuple[str, str]]:
        """Return the ARN of every learner's task that runs or is about to, and its job's id."""
        cluster = self._settings.cluster
        pages = self._ecs.get_paginator("list_tasks")
        found: list[tuple[str, str]] = []
        for family in self._settings.families:
            for page in pages.paginate(cluster=cluster, family=family, desiredStatus="RUNNING"):
                if page["taskArns"]:
                    answer = self._ecs.describe_tasks(cluster=cluster, tasks=page["taskArns"])
                    found += [
                        (each["taskArn"], each.get("startedBy", "")) for each in answer["tasks"]
                    ]
        return found

    def stop_task(self, arn: str, reason: str) -> None:
        """Stop a learner's task."""
        self._ecs.stop_task(cluster=self._settings.cluster, task=arn, reason=reason[:_MAX_REASON])

    def close(self) -> None:
        """Close idle connections."""
        for client in (self._dynamodb, self._lambda, self._ecs):
            client.close()


def watch(switch: Switch, *, now: float, silent_after_s: float) -> dict[str, Any]:
    """Run once; return the resources turned off, each with the reason.

    Raises:
        SwitchError: The heartbeat is unreadable, or a resource could not be turned off; the others
            were still tried.
    """
    heartbeat = switch.heartbeat()
    closed: dict[str, str] = {}
    failed: list[str] = []

    def turn_off(name: str, until: float, close: Callable[[str], bool]) -> None:
        reason = reason_to_close(heartbeat, until, now=now, silent_after_s=silent_after_s)
        if reason is None:
            return
        try:
            if close(reason):
                closed[name] = reason
                _LOG.warning("turned off: %s, because %s", name, reason)
        except (BotoCoreError, ClientError) as error:
            failed.append(f"{name} ({reason}): {error}")

    jobs = {} if heartbeat is None else heartbeat.jobs
    turn_off(
        "provisioned concurrency",
        0.0 if heartbeat is None else heartbeat.until,
        lambda _: switch.close_provisioned(),
    )
    try:
        tasks = switch.tasks()
    except (BotoCoreError, ClientError) as error:
        tasks = []
        failed.append(f"the learners' tasks, which cannot be listed: {error}")
    for arn, job_id in tasks:
        turn_off(
            f"learner of {job_id or 'nobody'} ({arn.rpartition('/')[2]})",
            jobs.get(job_id, 0.0),
            partial(_stop, switch, arn),
        )
    if failed:
        raise SwitchError(f"not turned off: {'; '.join(failed)}")
    return {"closed": closed}


def _stop(switch: Switch, arn: str, reason: str) -> bool:
    switch.stop_task(arn, reason)
    return True


def handler(event: object, context: object) -> dict[str, Any]:
    """Entry point of the schedule; the event is ignored."""
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
