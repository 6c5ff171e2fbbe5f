"""The scaler's heartbeat for the dead-man switch: one item in the jobs table.

The switch runs outside the scaler and shares no code with it; these names are their contract, and
`tests/lifecycle` tests one against the other.
"""

from collections.abc import Mapping

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.off_loop import OffLoop

PARTITION = "SCALER"
SORT = "HEARTBEAT"
_TRIES = 2
_MAX_REASON = 300


class HeartbeatError(RuntimeError):
    """The heartbeat could not be written; the message names the table."""


class Heartbeat:
    """Writes the scaler's time (`at`) and the allowed ends of capacity into a DynamoDB table.

    `jobs` has the end of each job's learner. `until`, their maximum, is for warm environments. All
    are Unix seconds; 0 means off.
    """

    def __init__(self, threads: OffLoop, *, table: str, region: str, timeout_s: float) -> None:
        self._threads = threads
        self._table = table
        self._client = boto3.client(
            "dynamodb",
            region_name=region,
            config=Config(
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
            ),
        )

    async def beat(self, *, at: float, until: Mapping[str, float]) -> None:
        """Write a heartbeat at `at`, with the latest end of each job's capacity.

        Raises:
            HeartbeatError: DynamoDB cannot be reached or refuses.
        """
        times = {"at": at, "until": max(until.values(), default=0.0)}
        item = {name: _number(time) for name, time in times.items()}
        jobs = {job_id: _number(job_until) for job_id, job_until in until.items()}
        try:
            await self._threads.run(
                self._client.put_item,
                TableName=self._table,
                Item={"pk": {"S": PARTITION}, "sk": {"S": SORT}, **item, "jobs": {"M": jobs}},
            )
        except (BotoCoreError, ClientError, OSError) as error:
            raise HeartbeatError(
                f"table {self._table!r}: {type(error).__name__}: {error}"[:_MAX_REASON]
            ) from error

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()


def _number(time: float) -> dict[str, str]:
    return {"N": f"{time:.0f}"}
