"""The cache for a learner and its functions: weights and slices out, gradients back.

As with rollouts, the first gradient of a call wins, regardless of the writer and of repeats, and
nothing is stored in a closed round. All keys contain the hash of the learner's lease: a gradient
for a learner that has lost the job is never mistaken for an answer to its successor.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from shared.cache import keys
from shared.cache.first_wins import FirstWins, StoreOutcome

MAX_REASON_CHARS = 300
_TOKEN = re.compile(
    rb"gradient:(?P<call>[0-9]{1,9})(?::(?P<request>[0-9]{1,9}):(?P<kind>lost|vanished):"
    rb"(?P<reason>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRound:
    """The update to which gradients belong."""

    job_id: str
    lease_hash: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientArrival:
    """A finished call: its gradient is stored, or will never arrive."""

    call: int
    failed: str | None = None
    """Why there is no gradient; None if it is stored."""
    request: int = 0
    """The request that failed."""
    vanished: bool = False
    """Whether it failed without its own fault, because a part of the system ended."""


class GradientCache(FirstWins):
    """A client of the cache with one connection."""

    # --- a learner's side -------------------------------------------------------------------

    def publish_slices(self, of: GradientRound, slices: Mapping[int, bytes]) -> None:
        """Publish a round's slices for functions, by call."""
        with self._errors("publishing slices"):
            pipeline = self._client.pipeline(transaction=False)
            for call, payload in slices.items():
                key = keys.gradient_slice(of.job_id, of.lease_hash, of.round, call)
                pipeline.set(key, payload, px=keys.TTL_MS)
            pipeline.execute()

    def publish_weights(
        self, of: GradientRound, version: int, payload: bytes, *, forget: Iterable[int] = ()
    ) -> None:
        """Publish one version of the weights for functions, and delete other versions."""
        names = [keys.weights(of.job_id, of.lease_hash, old) for old in forget]
        with self._errors("publishing weights"):
            pipeline = self._client.pipeline(transaction=False)
            key = keys.weights(of.job_id, of.lease_hash, version)
            pipeline.set(key, payload, px=keys.TTL_MS)
            if names:
                pipeline.unlink(*names)
            pipeline.execute()

    def wait_gradients(
        self, of: GradientRound, *, timeout_s: float
    ) -> list[tuple[GradientArrival, bytes | None]]:
        """Block until a call is done; return all finished calls, with their gradients if any.

        They are in order of arrival; after `timeout_s` the list is empty.
        """
        name = keys.gradient_arrivals(of.job_id, of.lease_hash, of.round)
        told = self._wait_tokens([name], timeout_s=timeout_s)
        return [] if told is None else self._with_payloads(of, _arrivals(told[1]))

    def answered_gradients(
        self, of: GradientRound, calls: Sequence[int]
    ) -> list[tuple[GradientArrival, bytes | None]]:
        """Return which of these calls are stored: their tokens can be lost with a connection."""
        stored = [GradientArrival(call=call) for call in calls]
        found = self._with_payloads(of, stored)
        return [(arrival, payload) for arrival, payload in found if payload is not None]

    def has_task(self, of: GradientRound, call: int, *, versions: Sequence[int]) -> bool:
        """Return whether a call's slice and these weights are in the cache."""
        names = self._task_names(of, call, versions)
        return self._run("EXISTS", *names) == len(names)

    def close_gradients(self, of: GradientRound, calls: Sequence[int]) -> int:
        """Close a round to gradients and free its keys; return the number of duplicates."""
        claims = keys.gradient_claims(of.job_id, of.lease_hash, of.round)
        self._close_claims(claims)
        self._unlink([keys.gradient_arrivals(of.job_id, of.lease_hash, of.round)])
        self.forget_calls(of, calls)
        return int(cast("bytes | None", self._run("HGET", claims, "duplicate")) or 0)

    def forget_calls(self, of: GradientRound, calls: Sequence[int]) -> None:
        """Free slices and gradients of calls that nobody waits for; their claims stay."""
        place = (of.job_id, of.lease_hash, of.round)
        slices = [keys.gradient_slice(*place, call) for call in calls]
        self._unlink([*slices, *(keys.gradient(*place, call) for call in calls)])

    def forget_weights(self, of: GradientRound, versions: Sequence[int]) -> None:
        """Delete versions of the weights."""
        self._unlink([keys.weights(of.job_id, of.lease_hash, version) for version in versions])

    def _with_payloads(
        self, of: GradientRound, arrivals: Sequence[GradientArrival]
    ) -> list[tuple[GradientArrival, bytes | None]]:
        if not arrivals:
            return []
        place = (of.job_id, of.lease_hash, of.round)
        names = [keys.gradient(*place, arrival.call) for arrival in arrivals]
        with self._errors("taking gradients"):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.mget(names)
            # A round's gradients may be as large as a hundred policies.
            pipeline.unlink(*names)
            payloads, _ = cast("tuple[list[bytes | None], int]", tuple(pipeline.execute()))
        return list(zip(arrivals, payloads, strict=True))

    # --- a function's side ------------------------------------------------------------------

    def fetch(
        self, of: GradientRound, *, call: int, versions: Sequence[int]
    ) -> tuple[bytes | None, list[bytes | None]]:
        """Return a call's slice and some versions of the weights, each None if missing."""
        names = self._task_names(of, call, versions)
        payload, *weights = cast("list[bytes | None]", self._run("MGET", *names))
        return payload, weights

    def _task_names(self, of: GradientRound, call: int, versions: Sequence[int]) -> list[str]:
        weights = [keys.weights(of.job_id, of.lease_hash, version) for version in versions]
        return [keys.gradient_slice(of.job_id, of.lease_hash, of.round, call), *weights]

    def store_gradient(self, of: GradientRound, call: int, payload: bytes) -> StoreOutcome:
        """Store a call's gradient, unless another is there or the round is closed."""
        place = (of.job_id, of.lease_hash, of.round)
        return self._store_first(
            keys.gradient_claims(*place),
            keys.gradient(*place, call),
            keys.gradient_arrivals(*place),
            claim=f"gradient:{call}",
            payload=payload,
            late=f"late-{call}",
        )

    # --- the scaler's side ------------------------------------------------------------------

    def announce_lost_gradient(
        self, of: GradientRound, *, call: int, request: int, reason: str, vanished: bool
    ) -> None:
        """Tell the learner not to wait for a call; no effect once its gradient is stored."""
        place = (of.job_id, of.lease_hash, of.round)
        kind = "vanished" if vanished else "lost"
        text = f"gradient:{call}:{request}:{kind}:{reason[:MAX_REASON_CHARS]}"
        round_keys = keys.gradient_claims(*place), keys.gradient_arrivals(*place)
        token = text.encode("utf-8", "replace")
        self._announce_lost(*round_keys, claim=f"gradient:{call}", token=token)


def _arrivals(tokens: Iterable[bytes]) -> list[GradientArrival]:
    """Parse tokens, skipping invalid ones."""
    found = []
    for token in tokens:
        match = _TOKEN.fullmatch(token)
        if match is None:
            continue
        call = int(match["call"])
        if match["request"] is None:
            found.append(GradientArrival(call=call))
            continue
        failed = match["reason"].decode("utf-8", "replace") or "no reason given"
        vanished = match["kind"] == b"vanished"
        request = int(match["request"])
        found.append(GradientArrival(call=call, failed=failed, request=request, vanished=vanished))
    return found
