"""The cache as a learner and its functions use it: weights and slices out, gradients back.

As with rollouts the first gradient of a call wins, whoever stores it and however often, and nothing
is stored in a round that is closed. All names hold the hash of the learner's lease: what a learner
that lost the job had asked for is never taken for an answer to another.
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
    """The update that the gradients belong to."""

    job_id: str
    lease_hash: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientArrival:
    """One call is done: its gradient is stored, or it will never come."""

    call: int
    failed: str | None = None
    """Why there will be none; None when it is stored."""
    request: int = 0
    """The request that failed."""
    vanished: bool = False
    """Whether it had no fair chance: a part of the system ended."""


class GradientCache(FirstWins):
    """A client of the cache with one connection."""

    # --- a learner's side -------------------------------------------------------------------

    def publish_slices(self, of: GradientRound, slices: Mapping[int, bytes]) -> None:
        """Put the slices of a round where functions fetch them, by their calls."""
        with self._errors("publishing slices"):
            pipeline = self._client.pipeline(transaction=False)
            for call, payload in slices.items():
                key = keys.gradient_slice(of.job_id, of.lease_hash, of.round, call)
                pipeline.set(key, payload, px=keys.TTL_MS)
            pipeline.execute()

    def publish_weights(
        self, of: GradientRound, version: int, payload: bytes, *, forget: Iterable[int] = ()
    ) -> None:
        """Put one version of the weights where functions fetch it, and forget others."""
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
        """Block until a call is done; return all that are, with their gradients if there are any.

        In the order they came; none when `timeout_s` is over.
        """
        name = keys.gradient_arrivals(of.job_id, of.lease_hash, of.round)
        told = self._wait_tokens([name], timeout_s=timeout_s)
        return [] if told is None else self._with_payloads(of, _arrivals(told[1]))

    def answered_gradients(
        self, of: GradientRound, calls: Sequence[int]
    ) -> list[tuple[GradientArrival, bytes | None]]:
        """Return which of these calls are stored: a token can be lost with a connection."""
        stored = [GradientArrival(call=call) for call in calls]
        found = self._with_payloads(of, stored)
        return [(arrival, payload) for arrival, payload in found if payload is not None]

    def has_task(self, of: GradientRound, call: int, *, versions: Sequence[int]) -> bool:
        """Return whether a function would find a call's slice and these weights."""
        names = self._task_names(of, call, versions)
        return self._run("EXISTS", *names) == len(names)

    def close_gradients(self, of: GradientRound, calls: Sequence[int]) -> int:
        """Let no more gradients into a round, free what there is; return how many came twice."""
        claims = keys.gradient_claims(of.job_id, of.lease_hash, of.round)
        self._close_claims(claims)
        self._unlink([keys.gradient_arrivals(of.job_id, of.lease_hash, of.round)])
        self.forget_calls(of, calls)
        return int(cast("bytes | None", self._run("HGET", claims, "duplicate")) or 0)

    def forget_calls(self, of: GradientRound, calls: Sequence[int]) -> None:
        """Free slices and gradients of calls that nobody waits for; what came is still known."""
        place = (of.job_id, of.lease_hash, of.round)
        slices = [keys.gradient_slice(*place, call) for call in calls]
        self._unlink([*slices, *(keys.gradient(*place, call) for call in calls)])

    def forget_weights(self, of: GradientRound, versions: Sequence[int]) -> None:
        """Forget versions of the weights."""
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
        """Return a call's slice and some versions of the weights, None where they are gone."""
        names = self._task_names(of, call, versions)
        payload, *weights = cast("list[bytes | None]", self._run("MGET", *names))
        return payload, weights

    def _task_names(self, of: GradientRound, call: int, versions: Sequence[int]) -> list[str]:
        weights = [keys.weights(of.job_id, of.lease_hash, version) for version in versions]
        return [keys.gradient_slice(of.job_id, of.lease_hash, of.round, call), *weights]

    def store_gradient(self, of: GradientRound, call: int, payload: bytes) -> StoreOutcome:
        """Store a call's gradient, unless one is there or the round is closed."""
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
        """Tell the learner not to wait for a call; without effect once its gradient is stored."""
        place = (of.job_id, of.lease_hash, of.round)
        kind = "vanished" if vanished else "lost"
        text = f"gradient:{call}:{request}:{kind}:{reason[:MAX_REASON_CHARS]}"
        round_keys = keys.gradient_claims(*place), keys.gradient_arrivals(*place)
        token = text.encode("utf-8", "replace")
        self._announce_lost(*round_keys, claim=f"gradient:{call}", token=token)


def _arrivals(tokens: Iterable[bytes]) -> list[GradientArrival]:
    """Return what tokens say, without those that say nothing."""
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
