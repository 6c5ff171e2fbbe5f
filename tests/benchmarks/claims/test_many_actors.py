"""A round of 200 actors through scaler, emulator and cache: every trajectory once, none lost."""

from benchmarks.claims.many_actors import pushing_fleet
from shared.contracts.rounds import TrajectoryCounts

NUM_ACTORS = 200


def test_no_trajectory_of_200_actors_is_lost_or_counted_twice() -> None:
    with pushing_fleet(processes=2) as fleet:
        (done,) = fleet.rounds(NUM_ACTORS, 1)
        stats = fleet.emulator_stats()
    expected = TrajectoryCounts(launched=NUM_ACTORS, used=NUM_ACTORS, late=0, duplicate=0, lost=0)
    assert done.counts == expected
    assert done.launch_s > 0
    # Two rounds of rollouts and one question what the environment looks like.
    assert stats["invoked"] == stats["succeeded"] == 2 * NUM_ACTORS + 1
    assert stats["in_flight"] == stats["throttled"] == 0
