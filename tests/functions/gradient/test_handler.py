"""The function in a process of its own, as the runtime imports it: without torch."""

import json
import os
import subprocess
import sys

from shared.cache.gradients import GradientCache
from shared.contracts.gradients import GradientReport
from shared.contracts.learner_functions import LearnerFunctions
from tests.functions.gradient.work import Work

_RUNTIME = """
import json, sys
from functions.gradient.handler import handler
for line in sys.stdin:
    try:
        reply = {"ok": handler(json.loads(line), None)}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(reply) + "\\n")
unwanted = {"torch", "fastapi", "boto3", "gymnasium", "mujoco", "matplotlib"} & set(sys.modules)
sys.exit(f"imported {unwanted}" if unwanted else 0)
"""


def test_events_are_answered_without_torch_or_an_environment(cache_url: str) -> None:
    work = Work(LearnerFunctions())
    with GradientCache(cache_url) as cache:
        work.publish(cache)
    task = json.loads(work.task().model_dump_json())
    events: list[object] = [task, task, {**task, "mode": "sample"}, {"x": "y" * 5000}]
    done = subprocess.run(
        [sys.executable, "-c", _RUNTIME],
        input="".join(json.dumps(event) + "\n" for event in events),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join(sys.path),
            "NITRO_CACHE_URL": cache_url,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, wrong, large = (json.loads(line) for line in done.stdout.splitlines())
    reports = [GradientReport.model_validate(reply["ok"]) for reply in (first, second)]
    assert [report.outcome for report in reports] == ["stored", "duplicate"]
    assert [report.cold_start for report in reports] == [True, False]
    assert wrong["error"].startswith("TaskRefusedError: event is no gradient task: mode")
    assert "at most 4096 are allowed" in large["error"]
