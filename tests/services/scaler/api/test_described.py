"""What the API says of itself, held against what it does by another project's generator."""

import subprocess
from pathlib import Path

import pytest

from tests.services.scaler.running import TOKEN, Scaler

_PROGRAM = Path(__file__).parents[4] / ".venv-schemathesis" / "bin" / "st"
_LONG_POLL = "claim_v1_leases_post"
"""Waits as long as it is asked to, up to a minute."""


@pytest.mark.api
def test_every_call_answers_as_it_is_described(scaler: Scaler, tmp_path: Path) -> None:
    """No failure, status, header or body that is not announced; no wrong request let in.

    That every request of the right form is accepted is not asked: no schema has rules between
    fields.
    """
    scaler.begin()
    scaler.http.get("/openapi.json")  # made at the first call, which may take a busy machine long
    done = subprocess.run(
        [
            *(str(_PROGRAM), "run", str(scaler.http.base_url.join("/openapi.json"))),
            *("--header", f"Authorization: Bearer {TOKEN}", "--seed", "1", "--no-color"),
            *("--phases", "coverage,fuzzing", "--max-examples", "20", "--continue-on-failure"),
            *("--request-timeout", "60", "--exclude-operation-id", _LONG_POLL),
            *("--exclude-checks", "positive_data_acceptance", "--warnings", "off"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
