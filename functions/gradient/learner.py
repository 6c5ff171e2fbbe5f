"""One learner function: weights and a slice in, a gradient out.

Between invocations it caches the weights of its last task, with their network and loss. Later tasks
use these or newer weights, so a warm function fetches only new data.
"""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import ValidationError

from learning.aggregation.described import LossInWords, NetworkLayout
from learning.aggregation.mlp_gradient import MlpGradient, function_gradient
from learning.data.samples import SAMPLE_FIELDS
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import GradientReport, GradientTask
from shared.gradients.messages import (
    Floats,
    GradientMessage,
    GradientMessageError,
    Weights,
    decode_slice,
)
from shared.trajectory.columns import Columns


class WeightsGoneError(LookupError):
    """The cache does not have the task's inputs."""


class GradientRefusedError(ValueError):
    """The cache's data is unusable; the message says why."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    weights: Weights
    others: tuple[Floats, ...]
    samples: Columns[Floats]


class LearnerFunction:
    """Runs gradient tasks in sequence."""

    def __init__(self, cache: GradientCache) -> None:
        self._cache = cache
        self._weights: dict[tuple[str, str, int], Weights] = {}

    def run(self, task: GradientTask, *, cold_start: bool) -> GradientReport:
        """Compute and store the task's gradient; do nothing after its deadline.

        Raises:
            WeightsGoneError: Weights or slice are not in the cache.
            GradientRefusedError: They cannot be used.
            CacheError: The cache cannot be reached.
        """
        begun_at, begun = time.time(), time.perf_counter()
        fetch_s = compute_s = push_s = 0.0
        outcome: Literal["stored", "duplicate", "late", "expired"] = "expired"
        if begun_at < task.deadline_at:
            of = GradientRound(job_id=task.job_id, lease_hash=task.lease_hash, round=task.round)
            fetched = self._fetched(task, of)
            here = time.perf_counter()
            fetch_s = here - begun
            flat, stats = _computed(fetched)
            compute_s = time.perf_counter() - here
            message = GradientMessage(
                job_id=task.job_id,
                round=task.round,
                call=task.call.call,
                base=task.call.base,
                num_samples=len(fetched.samples.observation),
                flat=flat,
                stats=stats,
                started_at=begun_at,
                fetch_s=fetch_s,
                compute_s=compute_s,
            )
            outcome = self._cache.store_gradient(of, task.call.call, message.encode())
            push_s = time.perf_counter() - here - compute_s
        return GradientReport(
            job_id=task.job_id,
            round=task.round,
            call=task.call.call,
            outcome=outcome,
            fetch_s=fetch_s,
            compute_s=compute_s,
            push_s=push_s,
            total_s=time.perf_counter() - begun,
            cold_start=cold_start,
        )

    def _fetched(self, task: GradientTask, of: GradientRound) -> _Fetched:
        names = {v: (of.job_id, of.lease_hash, v) for v in (task.call.base, *task.call.others)}
        new = [version for version, name in names.items() if name not in self._weights]
        payload, found = self._cache.fetch(of, call=task.call.call, versions=new)
        fetched = zip(new, found, strict=True)
        known = self._weights | {names[v]: _weights(of, v, data) for v, data in fetched}
        self._weights = {name: known[name] for name in names.values()}
        if payload is None:
            raise WeightsGoneError(
                f"slice {task.call.call} of round {task.round} of job {task.job_id} is not in the "
                "cache: it was removed, has expired or was never published"
            )
        own, *others = self._weights.values()
        return _Fetched(own, tuple(each.flat for each in others), _samples(payload))


def _weights(of: GradientRound, version: int, data: bytes | None) -> Weights:
    if data is None:
        raise WeightsGoneError(
            f"weights {version} of job {of.job_id} are not in the cache: they were removed, have "
            "expired or were never published"
        )
    try:
        weights = Weights.decode(data)
    except GradientMessageError as error:
        raise GradientRefusedError(f"weights {version} of job {of.job_id}: {error}") from error
    if weights.version != version:
        raise GradientRefusedError(f"weights {version} say that they are {weights.version}")
    return weights


def _samples(payload: bytes) -> Columns[Floats]:
    try:
        arrays = decode_slice(payload, names=SAMPLE_FIELDS).arrays
    except GradientMessageError as error:
        raise GradientRefusedError(f"the slice cannot be used: {error}") from error
    # Columns in a row, as the learner's own steps have them: sums are formed in one order.
    laid_out = {
        name: np.asfortranarray(array) if name != "observation" else array
        for name, array in arrays.items()
    }
    return Columns(**laid_out)


def _computed(fetched: _Fetched) -> tuple[Floats, Floats]:
    weights = fetched.weights
    try:
        network, loss = _network(weights.network), _loss(weights.loss)
        return function_gradient(
            network, weights.flat, fetched.others, fetched.samples, loss.rule(), loss.functions
        )
    except (ValidationError, ValueError) as error:
        raise GradientRefusedError(f"weights {weights.version}: {error}") from error


@lru_cache(maxsize=8)
def _network(text: str) -> MlpGradient:
    return NetworkLayout.read(text).network()


@lru_cache(maxsize=8)
def _loss(text: str) -> LossInWords:
    return LossInWords.read(text)
