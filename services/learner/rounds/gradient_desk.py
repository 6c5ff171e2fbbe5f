"""Where a job's learner asks for gradients of functions: through the scaler, out of the cache.

The learner puts slices and weights into the cache, asks the scaler to have functions launched, and
blocks on the list of what arrived. A request that stays without an answer for some seconds is sent
again under its number: a scaler that knows it launches nothing, one that was started anew does.
Every call comes back once: as a gradient, or as lost at its deadline.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from learning.aggregation.function_steps import FunctionSteps, LostCall
from learning.aggregation.weighting import Arrived
from learning.cpu.described import LossInWords, NetworkLayout
from learning.data.arrays import Floats
from learning.data.samples import SAMPLE_FIELDS, Minibatch
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.steps import GradientHyperparameters
from services.learner.rounds.left_early import LeftEarly
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.connection import CacheError
from shared.cache.gradients import GradientArrival, GradientCache, GradientRound
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.gradients import GradientCall, GradientRecord, GradientRequest
from shared.contracts.jobs import Job
from shared.contracts.leases import hash_of_lease
from shared.gradients.messages import GradientMessage, GradientMessageError, Slice, Weights

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
"""One blocking wait; after a silence of this length what is stored is looked at."""
_REPEAT_AFTER_S = 3.0
"""After so long without an arrival open requests are sent again."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A request, and the calls of it that are not answered."""

    request: GradientRequest
    left: dict[int, GradientCall]
    asked_at: float
    """Unix seconds."""
    give_up_at: float
    """`time.monotonic`."""


@dataclass(slots=True)
class _Times:
    """Seconds of the calls that arrived, summed up."""

    num: int = 0
    sums: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("invoke_s", "fetch_s", "compute_s", "push_s"), 0.0)
    )

    def add(self, message: GradientMessage, asked_at: float, now: float) -> None:
        done_at = message.started_at + message.fetch_s + message.compute_s
        # Clocks of two machines: a difference may be below 0.
        seconds = {
            "invoke_s": max(0.0, message.started_at - asked_at),
            "fetch_s": message.fetch_s,
            "compute_s": message.compute_s,
            "push_s": max(0.0, now - done_at),
        }
        self.num += 1
        for name, value in seconds.items():
            self.sums[name] += value

    def means(self) -> dict[str, float]:
        return {name: value / max(1, self.num) for name, value in self.sums.items()}


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
        """Ask for nothing yet.

        Args:
            job: Whose gradients they are.
            cache: Where everything goes through; with a connection of its own.
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
        hyperparameters: GradientHyperparameters,
        /,
    ) -> FunctionSteps:
        """Return what takes a network's steps along gradients from here: a `StepsBuilder`."""
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
        """Go on with the gradients of another round."""
        self._of = GradientRound(job_id=self._job.job_id, lease_hash=self._hash, round=round_index)
        self._first = self._num_calls = self._num_requests = 0
        self._requests: list[_Open] = []
        self._records: list[GradientRecord] = []
        self._times = _Times()
        self._heard_at = time.monotonic()

    def close_round(self) -> GradientRecord | None:
        """Let nothing more into the round; return what became of its gradients."""
        if not self._records:
            return None
        duplicate = self._clear()
        means = self._times.means()
        record = _joined(self._records).model_copy(update={"duplicate": duplicate, **means})
        self._records = []
        return record

    def leave(self) -> None:
        """Free what an update that was left unfinished has in the cache."""
        if not self._num_calls:
            return
        try:
            self._clear()
        except CacheError as error:  # it expires by itself
            _LOG.warning("slices not removed", extra={"job": self._job.job_id, "why": str(error)})

    def _clear(self) -> int:
        """Close the round, free all it has in the cache; return how many gradients came twice."""
        duplicate = self._cache.close_gradients(self._of, range(self._num_calls))
        self._cache.forget_weights(self._of, sorted(self._versions))
        self._versions.clear()
        self._num_calls = 0
        return duplicate

    # --- what `GradientDesk` asks for ---------------------------------------------------------

    def begin(self, slices: Sequence[Minibatch[Floats]]) -> None:
        """Put an update's slices into the cache."""
        self._first, self._num_calls = self._num_calls, self._num_calls + len(slices)
        encoded = {
            self._first + at: Slice(
                arrays={name: getattr(samples, name) for name in SAMPLE_FIELDS}
            ).encode()
            for at, samples in enumerate(slices)
        }
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
        named = {c.call: c.model_copy(update={"call": self._first + c.call}) for c in calls}
        request = GradientRequest(
            lease_id=self._lease.lease_id,
            request=self._num_requests,
            calls=tuple(named.values()),
        )
        self._num_requests += 1
        asked_at = time.time()
        deadline_s = self._send(request)
        self._requests.append(
            _Open(
                request=request,
                left={call.call: call for call in request.calls},
                asked_at=asked_at,
                give_up_at=time.monotonic() + deadline_s,
            )
        )
        self._heard_at = time.monotonic()

    def wait(self) -> Sequence[Arrived | LostCall]:
        """Return what came since, waiting for some if there is nothing."""
        while True:
            found = self._taken(self._cache.wait_gradients(self._of, timeout_s=_LOOK_S))
            if not found:
                left = [call for each in self._requests for call in each.left]
                found = self._taken(self._cache.answered_gradients(self._of, left))
            if found:
                self._heard_at = time.monotonic()
                return found
            if self._lease.must_leave:
                raise LeftEarly("asked to leave while gradients were computed")
            lost = self._given_up()
            if lost:
                return lost
            self._repeat()

    def end(self, record: GradientRecord) -> None:
        """Keep the record of an update."""
        self._records.append(record)
        self._requests.clear()

    # ------------------------------------------------------------------------------------------

    def _send(self, request: GradientRequest) -> float:
        grant = self._scaler.ask_gradients(self._job.job_id, self._of.round, request)
        if not grant.granted:
            raise LeftEarly(f"no more gradients: {grant.reason}", stop="budget")
        return grant.deadline_s

    def _repeat(self) -> None:
        """Send again what stays without an answer."""
        if time.monotonic() - self._heard_at < _REPEAT_AFTER_S:
            return
        for each in self._requests:
            if each.left:
                self._send(each.request)
        self._heard_at = time.monotonic()

    def _given_up(self) -> list[LostCall]:
        now = time.monotonic()
        late = [each for each in self._requests if now >= each.give_up_at]
        lost = [
            LostCall(call=call - self._first, why="no answer before its deadline", again=False)
            for each in late
            for call in each.left
        ]
        self._requests = [each for each in self._requests if now < each.give_up_at]
        return lost

    def _taken(
        self, told: Sequence[tuple[GradientArrival, bytes | None]]
    ) -> list[Arrived | LostCall]:
        now, found = time.time(), []
        for arrival, payload in told:
            asked = self._asked(arrival)
            if asked is None:
                continue  # answered before, or of a request that was given up
            request, call = asked
            del request.left[call.call]
            found.append(self._answer(arrival, payload, call, request.asked_at, now))
        self._requests = [each for each in self._requests if each.left]
        return found

    def _asked(self, arrival: GradientArrival) -> tuple[_Open, GradientCall] | None:
        for each in self._requests:
            call = each.left.get(arrival.call)
            failed_before = arrival.failed is not None and arrival.request != each.request.request
            if call is not None and not failed_before:
                return each, call
        return None

    def _answer(
        self,
        arrival: GradientArrival,
        payload: bytes | None,
        asked: GradientCall,
        asked_at: float,
        now: float,
    ) -> Arrived | LostCall:
        call = arrival.call - self._first
        if arrival.failed is not None:
            return LostCall(call=call, why=arrival.failed, again=arrival.vanished)
        if payload is None:
            return LostCall(call=call, why="its gradient is not in the cache", again=False)
        try:
            message = GradientMessage.decode(payload)
            self._require_asked(message, asked)
        except GradientMessageError as error:
            _LOG.warning("gradient refused", extra={"job": self._job.job_id, "why": str(error)})
            return LostCall(call=call, why=f"a damaged gradient: {error}", again=False)
        self._times.add(message, asked_at, now)
        return Arrived(
            call=call,
            base=message.base,
            flat=message.flat,
            stats=message.stats,
            num_samples=message.num_samples,
        )

    def _require_asked(self, message: GradientMessage, asked: GradientCall) -> None:
        got = (message.job_id, message.round, message.call)
        expected = (self._job.job_id, self._of.round, asked.call)
        # One that was asked for again may bring the first answer, at older weights.
        if got != expected or message.base > asked.base:
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
