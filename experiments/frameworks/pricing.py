"""The cost of a framework's run from its processor time, and of Nitro's job from counts.

The ledger of a recorded job goes by the clock of a machine that others used, and takes evaluations
between two updates for time of the learner. So rounds are counted and priced as
`experiments.repricing` does: calibrated durations for actors, the framework's own processor time
for what a round's learner takes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.durations import Durations
from experiments.frameworks.cells import FrameworkEvaluation
from experiments.frameworks.telling import Sampler
from experiments.repricing import round_usd
from experiments.studies.money.calibration import STANDARD, durations
from nitro.errors import CommandError
from nitro.planning.prices import cost_basis
from nitro.planning.workload import foretold_round
from shared.deployment.config import NitroConfig
from shared.money.costs import CostBasis

Price = Callable[[FrameworkEvaluation], float]
"""Dollars until an evaluation."""
_SERVER, _SERVER_CORES = "c7i.xlarge", 4


def prices(env_id: str, *, num_actors: int, fragment: int) -> Mapping[Sampler, Price] | None:
    """Return what runs on an environment cost, with either sampler.

    Args:
        env_id: Which.
        num_actors: Of a round.
        fragment: Steps of each.

    Returns:
        None where the environment's durations are not calibrated.
    """
    try:
        known = durations(env_id, STANDARD)
    except CommandError:
        return None
    basis = cost_basis(NitroConfig())
    usd_per_cpu_s = basis.prices.server_usd_per_s(_SERVER) / _SERVER_CORES
    external = replace(basis.with_learner("external"), pinged=num_actors)

    def own(reached: FrameworkEvaluation) -> float:
        return usd_per_cpu_s * reached.cpu_s

    def nitro(reached: FrameworkEvaluation) -> float:
        return own(reached) + job_usd(
            reached, known, external, num_actors=num_actors, fragment=fragment
        )

    return {"own": own, "nitro": nitro}


def job_usd(
    reached: FrameworkEvaluation,
    known: Durations,
    basis: CostBasis,
    *,
    num_actors: int,
    fragment: int,
) -> float:
    """Return what Nitro's job costs until an evaluation, which itself costs it nothing.

    Every round is taken to be alike; environments start cold in the first.
    """
    num_rounds = math.ceil(reached.env_steps / (num_actors * fragment))
    if not num_rounds:
        return 0.0
    first, other = (
        round_usd(
            foretold_round(
                basis,
                num_actors=num_actors,
                fragment_s=known.fragment_s(fragment),
                episodes_s=(),
                received_bytes=num_actors * fragment * known.bytes_per_sample,
                learner_s=reached.cpu_s / num_rounds,
                cold=cold,
            ),
            basis,
        )
        for cold in (num_actors, 0)
    )
    return first + (num_rounds - 1) * other
