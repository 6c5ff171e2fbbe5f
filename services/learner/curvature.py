"""How strongly the surrogate objective curves at the new policy: the detector's measurement.

Extreme eigenvalues of the Hessian of the policy surrogate objective (Nitro paper, section 5.1), in
the convention of a function to be maximised and over the policy's parameters only. The measurement
reads the policy and the round's samples, and changes neither; it draws nothing from any global
random state.
"""

import time

import torch

from services.learner.batch import TrainingBatch
from services.learner.lanczos import extreme_eigenvalues
from services.learner.networks import ActorCritic
from services.learner.surrogate import policy_surrogate
from shared.contracts import Curvature
from shared.job_spec import DetectorRule

PROBE_SEED = 0
"""Of the starting vector: the same in every round, so that rounds differ by their data only."""


def measure_curvature(
    network: ActorCritic, batch: TrainingBatch, *, rule: DetectorRule
) -> Curvature | None:
    """Return the curvature at the network's present policy, or None where there is none.

    Args:
        network: The policy after the round's update.
        batch: The round's samples.
        rule: How many samples and products to spend.

    Returns:
        None when the Hessian is not finite (a policy that diverged) or zero (no advantages).
    """
    start = time.perf_counter()
    samples = evenly_spread(batch.num_samples, rule.num_samples).to(batch.observation.device)
    advantage = batch.advantage[samples]
    if not bool(advantage.any()):
        return None
    surrogate = policy_surrogate(
        network,
        observation=batch.observation[samples],
        action=batch.action[samples],
        advantage=advantage,
    )
    try:
        result = extreme_eigenvalues(
            surrogate.hessian_product,
            surrogate.size,
            max_matvecs=rule.max_matvecs,
            tolerance=rule.tolerance,
            seed=PROBE_SEED,
            device=network.flat.device,
            dtype=network.flat.dtype,
        )
    except FloatingPointError:
        return None
    if result.lambda_max == result.lambda_min == 0.0:
        return None
    return Curvature(
        lambda_max=result.lambda_max,
        lambda_min=result.lambda_min,
        residual=result.residual,
        matvecs=result.matvecs,
        num_samples=len(samples),
        elapsed_s=time.perf_counter() - start,
    )


def evenly_spread(available: int, wanted: int) -> torch.Tensor:
    """Return min(wanted, available) distinct indices below `available`, evenly spaced from 0.

    >>> evenly_spread(10, 4).tolist()
    [0, 2, 5, 7]
    """
    count = min(wanted, available)
    return torch.arange(count) * available // count
