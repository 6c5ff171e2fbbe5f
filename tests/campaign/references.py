"""Undisturbed runs of the campaign's jobs: what the weights of disturbed ones are held against."""

import json
from pathlib import Path

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from tests.campaign.checks import weights_digest
from tests.campaign.schedule import NUM_SEEDS, job_spec
from tests.e2e.runs import train


class UndisturbedRunError(Exception):
    """An undisturbed run did not succeed."""


def reference_digests(folder: Path) -> dict[int, str]:
    """Return the weights' digest by seed; runs are made once for a folder."""
    known = folder / "references.json"
    if known.is_file():
        return {int(seed): digest for seed, digest in json.loads(known.read_text()).items()}
    runs_dir = folder / "references"
    digests: dict[int, str] = {}
    with LocalSystem(runs_dir) as system, NitroClient(system.api_url, system.token) as client:
        for seed in range(NUM_SEEDS):
            job = train(client, job_spec(seed, off_policy=False))
            if job.status != "succeeded":
                raise UndisturbedRunError(f"the undisturbed run of seed {seed} {job.status}")
            digests[seed] = weights_digest(runs_dir, job.job_id)
    known.write_text(json.dumps(digests))
    return digests
