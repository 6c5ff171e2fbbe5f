"""One connection to the trajectory cache, and its errors.

Threads take turns on it, so a thread that blocks for arrivals delays the others.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.credentials import CredentialProvider
from redis.retry import Retry

_IDLE_S = 10.0
"""A connection idle for longer is probed before use: AWS may drop it silently."""
_PROBE_S = 1.5
"""Longest wait for the answer to a probe."""
_CONNECT_S = 3.0
"""Longest wait for a connection: two tries end before Lambda gives up starting an environment."""
_PAUSE_S = 0.4
"""Longest pause before the second try: many environments connect at the same time."""
_BATCH = 1000
"""Keys deleted at once."""
MAX_AGE_S = 6 * 3600.0
"""Age at which a connection is replaced: ElastiCache cuts IAM connections after 12 hours."""


class CacheError(Exception):
    """The cache could not be reached, or refused a command; the message names its address."""


class CacheUnreachableError(CacheError):
    """No connection, or no answer in time: the same command may succeed later."""


class CacheConnection:
    """A connection that is opened at the first command and kept."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 10.0,
        credentials: CredentialProvider | None = None,
        max_age_s: float = MAX_AGE_S,
        idle_s: float = _IDLE_S,
    ) -> None:
        """Take a `redis://`, `rediss://` (TLS) or `unix://` URL.

        Nothing is sent yet, so the first command reveals a server that is down.

        Args:
            url: Address, possibly with user and password; never repeated in messages.
            timeout_s: Longest wait for a connection and for the answer to one command.
            credentials: Source of user and password for each new connection; None uses the URL's.
            max_age_s: Age at which the connection is replaced between two commands.
            idle_s: Idle time after which it is probed.

        Raises:
            CacheError: The URL is malformed.
        """
        try:
            self._address = _address(url)
            self._client = redis.Redis.from_url(
                url,
                protocol=2,
                socket_timeout=timeout_s,
                socket_connect_timeout=min(timeout_s, _CONNECT_S),
                socket_keepalive=True,
                retry=Retry(ExponentialWithJitterBackoff(cap=_PAUSE_S, base=_PAUSE_S / 2), 1),
                credential_provider=credentials,
                driver_info=None,  # saves two round trips per connection
            )
        except ValueError:
            # Not chained: the parser's message can quote a part of the password.
            raise CacheError(
                "NITRO_CACHE_URL is malformed: the cache URL must read redis://host:port/db, "
                "rediss://user:password@host:port/db or unix:///path"
            ) from None
        self._max_age_s = max_age_s
        self._turn = threading.Lock()
        self._is_closed = False
        self._idle_s = idle_s
        # The wall clock runs on while a Lambda environment is frozen.
        self._opened_at = self._used_at = time.time()
        # Block in slices well below the socket time-out, so that a lost server is noticed after
        # one slice, not at the end of the round.
        self._block_s = timeout_s / 2

    def close(self) -> None:
        """Close the connection permanently, after any command in progress."""
        with self._turn:
            self._is_closed = True
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect now if the cache can be reached; otherwise the first command raises an error."""
        with contextlib.suppress(CacheError):
            self.ping()

    def ping(self) -> None:
        """Raise `CacheError` unless the cache answers."""
        self._run("PING")

    def _unlink(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _BATCH):
            self._run("UNLINK", *names[start : start + _BATCH])

    def _run(self, command: str, *args: str | bytes | int) -> object:
        with self._errors(command):
            reply: object = self._client.execute_command(command, *args)  # type: ignore[no-untyped-call]
            return reply

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            with self._turn:
                if self._is_closed:
                    # The client would open another connection, which nothing would close.
                    raise CacheError(f"trajectory cache at {self._address}: it was closed before")
                now = time.time()
                if now - self._opened_at >= self._max_age_s:
                    self._opened_at = now
                    self._client.connection_pool.disconnect(inuse_connections=False)
                elif now - self._used_at >= self._idle_s:
                    self._probe()
                yield
                self._used_at = time.time()
        except redis.RedisError as error:
            lost = isinstance(error, redis.ConnectionError | redis.TimeoutError)
            kind = CacheUnreachableError if lost else CacheError
            raise kind(
                f"trajectory cache at {self._address}: {doing} failed: {error}; "
                "check that the server runs and that NITRO_CACHE_URL is right"
            ) from error

    def _probe(self) -> None:
        """Close a connection that does not answer soon, so that the command opens a new one."""
        pool = self._client.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_command("PING", check_health=False)  # type: ignore[no-untyped-call]
            connection.read_response(timeout=_PROBE_S)
        except redis.RedisError:
            connection.disconnect()  # type: ignore[no-untyped-call]
        finally:
            pool.release(connection)


def _address(url: str) -> str:
    """Return the URL without user, password and query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
