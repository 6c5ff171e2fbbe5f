"""The learner's requests for gradients of functions: through the scaler and the cache.

The learner puts slices and weights into the cache, asks the scaler to launch functions, and blocks
on the list of arrivals. An unanswered request is repeated under its number after some seconds: a
scaler that knows it launches nothing, a restarted one does. A vanished call is requested again
under a new number, and its first gradient counts. Every call returns once: as a gradient, or as
lost at its deadline.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from learning.aggregation.described import LossInWords, NetworkLayout
from learning.aggregation.function_steps import FunctionSteps, LostCall
from learning.aggregation.weighting import Arrived
from learning.arrays import Floats
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.steps import PolicyGradientHyperparameters
from services.learner.rounds.gradient_times import GradientTimes
from services.learner.rounds.left_early import LeftEarly
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.connection import CacheError
from shared.cache.gradients import GradientArrival, GradientCache, GradientRound
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.gradients import GradientCall, GradientRecord, GradientRequest
from shared.contracts.jobs import Job
from shared.contracts.leases import hash_of_lease
from shared.gradients.messages import GradientMessage, GradientMessageError, Weights, encode_slice
from shared.trajectory.columns import Columns

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
"""Longest blocking wait."""
_REPEAT_AFTER_S = 3.0
"""First retry interval of an open request, doubled each time. Stored results are checked then, too.
"""
_MOST_REPEATS = 3
"""Most repeats of a vanished call."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A request and its unanswered calls."""

    number: int
    left: dict[int, GradientCall]
    asked_at: float
    """Unix seconds."""
    sent_at: float = 0.0
    """When it was sent last, as `time.monotonic`."""
    repeat_after_s: float = _REPEAT_AFTER_S
    give_up_at: float = 0.0
    """`time.monotonic`."""


class CachedGradientDesk:
    """A `GradientDesk` for one lease; use it from one thread."""

    def __init__(
        self,
        *,
        job: Job,
        cache: GradientCache,
        scaler: ScalerClient,
        lease: HeldLease,
    ) -> None:
        """Send nothing yet.

        Args:
            job: The job of the gradients.
            cache: A client with its own connection.
            scaler: Launches functions.
            lease: Held on the job.
        """
        self._job = job
        self._layout = ""
        self._num_parameters = 0
        self._cache = cache
        self._scaler = scaler
        self._lease = lease
        self._hash = hash_of_lease(lease.lease_id)
        self._versions: set[int] = set()
        self.open_round(0)

    def steps(
        self,
        network: ActorCritic,
        _environment: EnvironmentSpec,
        hyperparameters: PolicyGradientHyperparameters,
        /,
    ) -> FunctionSteps:
        """Return a `StepsBuilder` that steps along gradients from here."""
        halves = network.halves()
        if halves is None:
            raise ValueError("functions compute gradients of dense networks on a CPU only")
        self._layout = NetworkLayout.of(*halves).model_dump_json()
        self._num_parameters = len(network.flat)
        return FunctionSteps(
            network,
            self,
            self._job.spec.learner_functions,
            hyperparameters,
        )

    def open_round(self, round_index: int) -> None:
        """Start the gradients of another round."""
        self._of = GradientRound(job_id=self._job.job_id, lease_hash=self._hash, round=round_index)
        self._first = self._num_calls = self._num_requests = 0
        self._requests: list[_Open] = []
        self._records: list[GradientRecord] = []
        self._times = GradientTimes()

    def close_round(self) -> GradientRecord | None:
        """Close the round; return the outcomes of its gradients."""
        if not self._records:
            return None
        duplicate = self._clear()
        means = self._times.means()
        record = _joined(self._records).model_copy(update={"duplicate": duplicate, **means})
        self._records = []
        return record

    def leave(self) -> None:
        """Free an unfinished update's entries in the cache."""
        if not self._num_calls:
            return
        try:
            self._clear()
        except CacheError as error:  # it expires by itself
            _LOG.warning("slices not removed", extra={"job": self._job.job_id, "why": str(error)})

    def _clear(self) -> int:
        """Close the round and free its entries; return the number of duplicate gradients."""
        duplicate = self._cache.close_gradients(self._of, range(self._num_calls))
        self._forget_weights()
        self._num_calls = 0
        return duplicate

    def _forget_weights(self) -> None:
        self._cache.forget_weights(self._of, sorted(self._versions))
        self._versions.clear()

    # --- what `GradientDesk` asks for ---------------------------------------------------------

    def begin(self, slices: Sequence[Columns[Floats]]) -> None:
        """Put an update's slices into the cache."""
        self._first, self._num_calls = self._num_calls, self._num_calls + len(slices)
        self._vanished: Counter[int] = Counter()
        self._again: list[GradientCall] = []
        encoded = {self._first + at: encode_slice(samples) for at, samples in enumerate(slices)}
        self._cache.publish_slices(self._of, encoded)

    def publish(self, version: int, flat: Floats, rule: LossRule, *, forget: Sequence[int]) -> None:
        """Put weights into the cache, and forget others."""
        loss = LossInWords.of(rule, self._job.spec.learner_functions)
        weights = Weights(
            version=version, flat=flat, network=self._layout, loss=loss.model_dump_json()
        )
        self._cache.publish_weights(self._of, version, weights.encode(), forget=forget)
        self._versions = (self._versions - set(forget)) | {version}

    def ask(self, calls: Sequence[GradientCall]) -> None:
        """Have functions launched."""
        self._request([c.model_copy(update={"call": self._first + c.call}) for c in calls])

    def wait(self) -> Sequence[Arrived | LostCall]:
        """Return new arrivals, waiting for some if there are none."""
        while True:
            if self._lease.must_leave:
                raise LeftEarly("asked to leave while gradients were computed")
            found = self._taken(self._cache.wait_gradients(self._of, timeout_s=_LOOK_S))
            # Before anything slow: results that arrive meanwhile are not late.
            found += self._given_up()
            found += self._repeat()
            if found:
                return found

    def end(self, record: GradientRecord) -> None:
        """Keep the record of an update, and free its entries in the cache."""
        self._records.append(record)
        self._requests.clear()
        self._cache.forget_calls(self._of, range(self._first, self._num_calls))
        self._forget_weights()

    # ------------------------------------------------------------------------------------------

    def _request(self, calls: Sequence[GradientCall]) -> None:
        """Request calls under a new number."""
        each = _Open(
            number=self._num_requests,
            left={call.call: call for call in calls},
            asked_at=time.time(),
        )
        self._num_requests += 1
        deadline_s = self._send(each)
        each.give_up_at = time.monotonic() + deadline_s
        self._requests.append(each)

    def _send(self, each: _Open) -> float:
        """Send the rest of a request; return how long to wait for it."""
        request = GradientRequest(
            lease_id=self._lease.lease_id, request=each.number, calls=tuple(each.left.values())
        )
        grant = self._scaler.ask_gradients(self._job.job_id, self._of.round, request)
        if not grant.granted:
            raise LeftEarly(f"no more gradients: {grant.reason}", stop="budget")
        each.sent_at = time.monotonic()
        return grant.deadline_s

    def _repeat(self) -> list[Arrived | LostCall]:
        """Repeat vanished or unanswered calls; return stored results without a token."""
        now = time.monotonic()
        silent = [each for each in self._requests if now - each.sent_at >= each.repeat_after_s]
        # A token can be lost with a connection.
        left = [call for each in silent for call in each.left]
        found = self._taken(self._cache.answered_gradients(self._of, left))
        again, self._again = self._again, []
        if again:
            self._request(again)
        for each in silent:
            if each.left:
                each.repeat_after_s *= 2
                self._send(each)
        return found

    def _given_up(self) -> list[LostCall]:
        now = time.monotonic()
        late = [each for each in self._requests if now >= each.give_up_at]
        lost = [
            LostCall(call=call - self._first, why="no answer before its deadline")
            for each in late
            for call in each.left
        ]
        self._requests = [each for each in self._requests if now < each.give_up_at]
        return lost

    def _taken(
        self, told: Sequence[tuple[GradientArrival, bytes | None]]
    ) -> list[Arrived | LostCall]:
        now = time.time()
        found: list[Arrived | LostCall] = []
        for arrival, payload in told:
            asked = self._asked(arrival, payload)
            if asked is None:
                continue  # already answered, or from an abandoned request
            request, call = asked
            del request.left[call.call]
            if payload is None and arrival.vanished and self._goes_on(call):
                self._again.append(call)
            else:
                found.append(self._answer(arrival, payload, call, request.asked_at, now))
        self._requests = [each for each in self._requests if each.left]
        return found

    def _asked(
        self, arrival: GradientArrival, payload: bytes | None
    ) -> tuple[_Open, GradientCall] | None:
        for each in self._requests:
            call = each.left.get(arrival.call)
            # A stored result counts, from any request and after any failure.
            failed = payload is None and arrival.failed is not None
            if call is not None and not (failed and arrival.request != each.number):
                return each, call
        return None

    def _goes_on(self, call: GradientCall) -> bool:
        """Whether to repeat a vanished call.

        Raises:
            LeftEarly: The cache has lost the call's inputs and has to be refilled.
        """
        if not self._cache.has_task(self._of, call.call, versions=(call.base, *call.others)):
            raise LeftEarly("the cache has lost the slices and weights of an update")
        self._vanished[call.call] += 1
        return self._vanished[call.call] <= _MOST_REPEATS

    def _answer(
        self,
        arrival: GradientArrival,
        payload: bytes | None,
        asked: GradientCall,
        asked_at: float,
        now: float,
    ) -> Arrived | LostCall:
        call = arrival.call - self._first
        if payload is None:
            return LostCall(call=call, why=arrival.failed or "its gradient is not in the cache")
        try:
            message = GradientMessage.decode(payload)
            self._require_asked(message, asked)
        except GradientMessageError as error:
            _LOG.warning("gradient refused", extra={"job": self._job.job_id, "why": str(error)})
            return LostCall(call=call, why=f"a damaged gradient: {error}")
        self._times.add(message, asked_at, now)
        return Arrived(
            call=call,
            base=message.base,
            flat=message.flat,
            stats=message.stats,
            num_samples=message.num_samples,
        )

    def _require_asked(self, message: GradientMessage, asked: GradientCall) -> None:
        got = (message.job_id, message.round, message.call, message.base)
        expected = (self._job.job_id, self._of.round, asked.call, asked.base)
        if got != expected:
            raise GradientMessageError(f"it is about {got}, not about {expected}")
        if len(message.flat) != self._num_parameters or message.num_samples < 1:
            raise GradientMessageError(
                f"it has {len(message.flat)} numbers of {message.num_samples} samples, expected "
                f"{self._num_parameters}"
            )


def _joined(records: Sequence[GradientRecord]) -> GradientRecord:
    """Return the record of several updates of one round."""
    sums = {
        name: sum(getattr(record, name) for record in records)
        for name in ("asked", "used", "stale", "lost", "steps")
    }
    last = records[-1]
    return last.model_copy(
        update={
            **sums,
            "staleness": tuple(age for record in records for age in record.staleness),
            "queued": tuple(length for record in records for length in record.queued),
            "aggregate_s": sum(record.aggregate_s for record in records) / len(records),
        }
    )
