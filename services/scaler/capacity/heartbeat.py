"""The scaler's sign of life for the dead-man switch: one item in the jobs table.

The switch runs outside the scaler and shares no code with it; these names are what they agree on,
and `tests/lifecycle` runs one against the other.
"""

from collections.abc import Mapping

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from services.scaler.off_loop import OffLoop
from shared.contracts.learner_kind import LearnerKind

PARTITION = "SCALER"
SORT = "HEARTBEAT"
_TRIES = 2
_MAX_REASON = 300


class HeartbeatError(RuntimeError):
    """The sign of life could not be given; the message names the table."""


class Heartbeat:
    """Writes into a DynamoDB table when the scaler lived (`at`), and until when what may be on.

    `gpu_until` and `cpu_until` are for the learner of each kind. `until`, the later of both, is for
    environments kept warm. All are Unix seconds; 0 means off.
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

    async def beat(self, *, at: float, until: Mapping[LearnerKind, float | None]) -> None:
        """Say that the scaler lived at `at`, and until when jobs of each kind may keep capacity on.

        Raises:
            HeartbeatError: DynamoDB cannot be reached or refuses.
        """
        by_kind = {f"{kind}_until": kind_until or 0.0 for kind, kind_until in until.items()}
        times = {"at": at, "until": max(by_kind.values()), **by_kind}
        item = {name: {"N": f"{time:.0f}"} for name, time in times.items()}
        try:
            await self._threads.run(
                self._client.put_item,
                TableName=self._table,
                Item={"pk": {"S": PARTITION}, "sk": {"S": SORT}, **item},
            )
        except (BotoCoreError, ClientError, OSError) as error:
            raise HeartbeatError(
                f"table {self._table!r}: {type(error).__name__}: {error}"[:_MAX_REASON]
            ) from error

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
