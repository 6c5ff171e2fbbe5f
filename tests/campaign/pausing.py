"""Pausing a learner at the worst moment: the answer to its next round is on the way to it."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.artifacts.store import CHECKPOINTS, LEDGER_FILE
from shared.contracts.billing import LedgerLine
from tests.e2e.runs import PATIENCE_S

_LOOK_S = 0.02
_ASKS_S = 0.5
"""A learner that has saved a round asks for the next within milliseconds."""


def pause_holder(system: LocalSystem, client: NitroClient, folder: Path) -> str:
    """Stop the learner that trains the job of a run's folder; return the learner's name.

    Actors of a round must be held in flight, and may go on once this has been called: the learner
    ends that round, asks for the next one, and is stopped before it reads the answer.
    """
    events = client.events(folder.name).events
    claims = [event.text for event in events if event.kind == "claimed"]
    named = re.match(r"(learner(?:-\d+)?)-local ", claims[-1])
    assert named is not None, claims
    saved = newest_checkpoint(folder)
    os.kill(system.pid("scaler"), signal.SIGSTOP)
    try:
        wait_for(lambda: newest_checkpoint(folder) > saved)
        threading.Event().wait(_ASKS_S)
        os.kill(system.pid(named[1]), signal.SIGSTOP)
    finally:
        os.kill(system.pid("scaler"), signal.SIGCONT)
    return named[1]


def wake(system: LocalSystem, name: str, job_id: str) -> None:
    """Let a stopped learner go on, and wait until it has let go of the job."""
    path = system.logs / f"{name}.log"
    left = re.compile(rf"job left .*{job_id}")
    told = len(left.findall(path.read_text()))
    os.kill(system.pid(name), signal.SIGCONT)
    wait_for(lambda: len(left.findall(path.read_text())) > told)


def newest_checkpoint(folder: Path) -> int:
    """Return the round that the newest complete checkpoint of a run is named after."""
    found = folder.glob(f"{CHECKPOINTS}/*/state.json")
    return max((int(path.parent.name) for path in found), default=0)


def written_usd(folder: Path) -> float:
    """Return what the lines of a run's own ledger come to."""
    lines = (folder / LEDGER_FILE).read_text().splitlines()
    return sum(LedgerLine.model_validate_json(line).amount_usd for line in lines)


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    give_up_at, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come to hold"
        pause.wait(_LOOK_S)
