"""One learner function against the gradient computed here, and what it refuses."""

import numpy as np
import pytest

from functions.gradient.learner import GradientRefusedError, LearnerFunction, WeightsGoneError
from learning.aggregation.mlp_gradient import function_gradient
from shared.cache.gradients import GradientCache
from shared.contracts.learner_functions import LearnerFunctions
from shared.gradients.messages import GradientMessage
from tests.functions.gradient.work import Work


@pytest.fixture
def cache(cache_url: str) -> GradientCache:
    return GradientCache(cache_url)


def stored(cache: GradientCache, work: Work) -> GradientMessage:
    ((arrival, payload),) = cache.wait_gradients(work.of, timeout_s=5.0)
    assert arrival.call == 2
    assert payload is not None
    return GradientMessage.decode(payload)


@pytest.mark.parametrize("others", [(), (3, 4)])
def test_it_stores_the_gradient_of_its_slice(cache: GradientCache, others: tuple[int, ...]) -> None:
    work = Work(LearnerFunctions())
    work.publish(cache, versions=(3, 4, 5))
    report = LearnerFunction(cache).run(work.task(others=others), cold_start=True)
    assert report.outcome == "stored"
    assert report.cold_start
    message = stored(cache, work)
    assert (message.base, message.call, message.round, message.num_samples) == (5, 2, 3, 40)
    at = {version: work.flat * np.float32(1.0 + 0.01 * version) for version in (3, 4, 5)}
    expected, stats = function_gradient(
        work.layout.network(),
        at[5],
        [at[other] for other in others],
        work.samples,
        work.learner._rule,
        work.functions,
    )
    np.testing.assert_allclose(message.flat, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(message.stats, stats, rtol=1e-5)


def test_the_first_gradient_wins_and_the_second_is_a_duplicate(cache: GradientCache) -> None:
    work = Work(LearnerFunctions())
    work.publish(cache)
    function = LearnerFunction(cache)
    outcomes = [function.run(work.task(), cold_start=False).outcome for _ in range(3)]
    assert outcomes == ["stored", "duplicate", "duplicate"]
    stored(cache, work)
    assert cache.wait_gradients(work.of, timeout_s=0.05) == []
    assert cache.close_gradients(work.of, [2]) == 2


def test_nothing_is_stored_in_a_closed_round(cache: GradientCache) -> None:
    work = Work(LearnerFunctions())
    cache.close_gradients(work.of, [2])
    work.publish(cache)
    assert LearnerFunction(cache).run(work.task(), cold_start=False).outcome == "late"
    assert cache.wait_gradients(work.of, timeout_s=0.05) == []


def test_nothing_is_done_past_the_deadline(cache: GradientCache) -> None:
    work = Work(LearnerFunctions())
    report = LearnerFunction(cache).run(work.task(deadline_at=1.0), cold_start=False)
    assert report.outcome == "expired"


def test_what_is_not_in_the_cache_is_named(cache: GradientCache) -> None:
    work = Work(LearnerFunctions())
    function = LearnerFunction(cache)
    with pytest.raises(WeightsGoneError, match="weights 5"):
        function.run(work.task(), cold_start=False)
    cache.publish_weights(work.of, 5, work.weights(5, work.flat))
    with pytest.raises(WeightsGoneError, match="slice 2"):
        function.run(work.task(), cold_start=False)


@pytest.mark.parametrize("damage", ["no zstd", "cut off", "another layout", "another version"])
def test_what_is_damaged_is_refused_and_stores_nothing(cache: GradientCache, damage: str) -> None:
    work = Work(LearnerFunctions())
    work.publish(cache)
    whole = work.weights(5, work.flat)
    payload = {
        "no zstd": b"\x80\x04K\x01.",
        "cut off": whole[:-9],
        "another layout": work.weights(5, work.flat[:-400]),
        "another version": work.weights(6, work.flat),
    }[damage]
    cache.publish_weights(work.of, 5, payload)
    with pytest.raises(GradientRefusedError):
        LearnerFunction(cache).run(work.task(), cold_start=False)
    assert cache.wait_gradients(work.of, timeout_s=0.05) == []


def test_a_warm_function_fetches_only_what_its_last_task_did_not_name(
    cache: GradientCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(LearnerFunctions())
    work.publish(cache, versions=(4, 5, 6))
    asked: list[tuple[int, ...]] = []
    fetch = cache.fetch

    def counted(of: object, *, call: int, versions: list[int]) -> object:
        asked.append(tuple(versions))
        return fetch(work.of, call=call, versions=versions)

    monkeypatch.setattr(cache, "fetch", counted)
    function = LearnerFunction(cache)
    for others in ((4,), (6, 4), (6,), (4,)):
        function.run(work.task(others=others), cold_start=False)
    assert asked == [(5, 4), (6,), (), (4,)]
