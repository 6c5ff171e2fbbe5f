"""The same rounds on a single rented server, whose cores serve learner and actors in turn.

Most people would do this without functions, so this is the comparison that counts. It uses the
cheapest size, including its boot.
"""

from collections.abc import Mapping

from shared.contracts.billing import ServerfulCost
from shared.money.costs import CostBasis
from shared.money.prices import PriceTable
from shared.money.round_costs import MeasuredRound

SERVER_CORES = {
    "c7i.xlarge": 4,
    "c7i.2xlarge": 8,
    "c7i.4xlarge": 16,
    "c7i.8xlarge": 32,
    "c7i.16xlarge": 64,
}
"""vCPUs of the compared sizes."""
BOOT_S = 60.0
"""From the request for a server to its first round: machine, image and libraries."""
ONE_SERVER_ASSUMPTIONS = (
    "One server: the cheapest of "
    f"{', '.join(SERVER_CORES)} for the whole run, {BOOT_S:g} s of boot included. Its cores serve "
    "actors and learner in turn and without loss, each at the speed of a core here; the learner is "
    "as fast as here.",
)
"""Assumptions of the comparison with one server."""


def one_server_round_s(measured: MeasuredRound, basis: CostBasis, cores: int) -> float:
    """Return a round's wall time on a server with `cores` cores.

    Actors share the cores evenly, and the learner works after them. Open rounds overlap: the time
    is divided by their number, but is at least the time of all the work.
    """
    evenly_s = measured.core_s(basis) / cores
    acted_s = max(evenly_s, measured.slowest_core_s(basis))
    latency_s = measured.overhead_s + acted_s + measured.learner_s
    work_s = evenly_s + measured.learner_s / cores
    return max(measured.learner_s, work_s, latency_s / measured.open_rounds)


def round_on_servers(measured: MeasuredRound, basis: CostBasis) -> dict[str, float]:
    """Return a round's wall time on every size."""
    return {
        kind: one_server_round_s(measured, basis, cores) for kind, cores in SERVER_CORES.items()
    }


def best_server(wall_s: Mapping[str, float], prices: PriceTable) -> ServerfulCost | None:
    """Return the size with the lowest cost for its wall time; None if no size has a price."""
    costs = [
        ServerfulCost(
            learner_instance=kind,
            actor_instance=kind,
            wall_s=BOOT_S + seconds,
            total_usd=(BOOT_S + seconds) * prices.server_usd_per_s(kind),
        )
        for kind, seconds in wall_s.items()
        if kind in prices.server_usd_per_hour
    ]
    return min(costs, key=lambda cost: cost.total_usd, default=None)
