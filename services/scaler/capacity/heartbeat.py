"""The scaler's sign of life for the dead-man switch: one item in the jobs table.

The switch runs outside the scaler and shares no code with it; these names are what they agree on,
and `tests/lifecycle` runs one against the other.
"""

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PARTITION = "SCALER"
SORT = "HEARTBEAT"
_TRIES = 2
_MAX_REASON = 300


class HeartbeatError(RuntimeError):
    """The sign of life could not be given; the message names the table."""


class Heartbeat:
    """Writes `at` and `until` (Unix seconds; 0: nothing should be on) into a DynamoDB table."""

    def __init__(self, *, table: str, region: str, timeout_s: float) -> None:
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

    def beat(self, *, at: float, until: float | None) -> None:
        """Say that the scaler lived at `at` and wants capacity on until `until` at most.

        Raises:
            HeartbeatError: DynamoDB cannot be reached or refuses.
        """
        try:
            self._client.put_item(
                TableName=self._table,
                Item={
                    "pk": {"S": PARTITION},
                    "sk": {"S": SORT},
                    "at": {"N": f"{at:.0f}"},
                    "until": {"N": f"{until or 0:.0f}"},
                },
            )
        except (BotoCoreError, ClientError, OSError) as error:
            raise HeartbeatError(
                f"table {self._table!r}: {type(error).__name__}: {error}"[:_MAX_REASON]
            ) from error

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
