"""Rounds of results in the cache: the first result of each claim wins, regardless of its writer.

A round is a hash of claims, a list of tokens on which the learner blocks, and a key for each
result. Both actors' trajectories and functions' gradients are stored like this.
"""

import os
import time
from collections.abc import Sequence
from typing import Literal, cast

from redis.credentials import CredentialProvider

from shared.cache import keys, scripts
from shared.cache.connection import MAX_AGE_S, CacheConnection

StoreOutcome = Literal["stored", "duplicate", "late"]
LIMIT = 256
"""Default for the number of tokens taken at a time."""


class FirstWins(CacheConnection):
    """A connection with the atomic operations on rounds."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 10.0,
        credentials: CredentialProvider | None = None,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        """Take a connection's arguments; nothing is sent yet."""
        super().__init__(url, timeout_s=timeout_s, credentials=credentials, max_age_s=max_age_s)
        self._store = self._client.register_script(scripts.STORE)
        self._announce = self._client.register_script(scripts.ANNOUNCE_FAILURE)
        self._close = self._client.register_script(scripts.CLOSE)

    def _store_first(
        self, claims: str, result: str, arrivals: str, *, claim: str, payload: bytes, late: str
    ) -> StoreOutcome:
        """Store a result unless its claim is taken or the round is closed. One round trip.

        Args:
            claims: Key of the round's claims.
            result: Key of the result.
            arrivals: Key of the round's tokens.
            claim: The result's claim, and its token.
            payload: The result.
            late: Claim that marks a late result; if empty, results not stored are not counted.
        """
        with self._errors("storing a result"):
            outcome = self._store(
                keys=[claims, result, arrivals],
                args=[claim, os.urandom(8).hex(), payload, keys.TTL_MS, claim, late],
            )
        return cast("StoreOutcome", outcome.decode())

    def _announce_lost(self, claims: str, arrivals: str, *, claim: str, token: bytes) -> None:
        """Tell the learner not to wait for a result; no effect once the result is stored."""
        with self._errors("announcing a failure"):
            self._announce(keys=[claims, arrivals], args=[claim, token, keys.TTL_MS])

    def _close_claims(self, claims: str) -> None:
        """Close a round to further results; harmless to repeat."""
        with self._errors("closing a round"):
            self._close(keys=[claims], args=[keys.TTL_MS])

    def _wait_tokens(
        self, arrivals: Sequence[str], *, timeout_s: float, limit: int = LIMIT
    ) -> tuple[str, list[bytes]] | None:
        """Block until one of these lists has tokens; take up to `limit` from the first such list.

        Returns:
            The list's key, and the tokens in order of arrival; None after `timeout_s`.
        """
        wanted: tuple[str | int, ...] = (len(arrivals), *arrivals, "LEFT", "COUNT", limit)
        deadline = time.monotonic() + timeout_s
        reply = self._run("LMPOP", *wanted) if timeout_s <= 0 else None
        while reply is None and (remaining := deadline - time.monotonic()) > 0:
            # A time-out of 0 would block for ever.
            block_s = max(0.001, min(remaining, self._block_s))
            reply = self._run("BLMPOP", f"{block_s:.3f}", *wanted)
        if reply is None:
            return None
        key, tokens = cast("tuple[bytes, list[bytes]]", reply)
        return key.decode(), tokens
