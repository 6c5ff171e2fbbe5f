"""Iterations whose actors only answer: all answers are learned from, and bytes are counted."""

from benchmarks.claims.many_actors import pushing_fleet
from benchmarks.claims.searches import iterations

NUM_ACTORS = 40


def test_an_iterations_bytes_are_policies_and_answers() -> None:
    with pushing_fleet(processes=2, actor="answering_actor") as fleet:
        (done,) = iterations(fleet, NUM_ACTORS, 1)
    moments, weights = 2 * 348 * 8, 348 * 17 * 4
    assert NUM_ACTORS * moments < done.into_cache < 2 * NUM_ACTORS * moments
    sent = NUM_ACTORS * (weights + moments)
    assert sent < done.out_of_cache < 1.6 * sent
    assert 0 < done.update_s < done.answers_s
