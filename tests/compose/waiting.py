"""Waiting for a system in containers, with patience that ends."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import httpx

from nitro.client.client import NitroClient
from nitro.client.errors import ApiUnreachableError
from shared.contracts.jobs import FINISHED, Job

PATIENCE_S = 400.0
"""Bound on any wait, far above what the work takes."""

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """Return the first thing that is seen and not None."""
    give_up_at = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while (seen := look()) is None:
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        pause.wait(0.1)
    return seen


def wait_ready(api_url: str) -> None:
    """Return once a scaler has all it needs."""

    def ready() -> bool | None:
        try:
            return httpx.get(f"{api_url}/readyz").status_code == 200 or None
        except httpx.HTTPError:
            return None

    wait_for("the scaler", ready)


def wait_job(client: NitroClient, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """Return the job once the condition holds; calls that find no scaler are made again."""

    def look() -> Job | None:
        try:
            job = client.get(job_id)
        except ApiUnreachableError:
            return None
        return job if condition(job) else None

    return wait_for(f"job {job_id}", look)


def has_ended(job: Job) -> bool:
    """Say whether a job is over."""
    return job.status in FINISHED
