"""Iterations whose actors only answer: all answers are learned from, and bytes are counted."""

from benchmarks.claims.system.searches import iterations

NUM_ACTORS = 40


def test_an_iterations_bytes_are_policies_and_answers() -> None:
    (done,) = iterations(NUM_ACTORS, 1)
    moments, weights = 2 * 348 * 8, 348 * 17 * 4
    assert NUM_ACTORS * moments < done.into_cache < 2 * NUM_ACTORS * moments
    assert weights + NUM_ACTORS * moments < done.out_of_cache
    assert done.out_of_cache < 1.6 * NUM_ACTORS * (weights + moments)
    assert 0 < done.learner_s < done.cpu_s
    assert done.update_s > 0
