"""The measurement of a policy after its updates."""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import Identifier, Message, PositiveFloat, PositiveInt

ObjectiveName = Literal["surrogate", "behaviour", "total_loss"]
Sampling = Literal["proportional", "even"]


class DetectorRule(Message):
    """The measurement of the policy after an update."""

    name: Identifier = "hessian"
    """The detector. `hessian` finds the largest and smallest eigenvalue of the Hessian."""
    every_rounds: PositiveInt | None = None
    """Measure in rounds 0, n, 2n, ... The rounds between use the last ratio again. Unset: every
    round, or every fourth round for images in preset `standard`. There one measurement on a CPU
    takes longer than a round."""
    objective: ObjectiveName = "surrogate"
    """`surrogate`: the policy's objective at ratio 1. `behaviour`: the clipped objective, with the
    ratio to the policy that sampled. `total_loss`: minus the whole loss with the value function, as
    in the published code. The last two are for PPO."""
    num_samples: Annotated[int, Field(strict=True, ge=1)] = 256
    """Number of the round's steps for the Hessian. More steps take longer and give a less noisy
    ratio (`experiments.studies.detector.detector_subsampling`).
    """
    sampling: Sampling = "proportional"
    """Choice of the steps. `proportional` draws them in proportion to their estimated share of the
    Hessian. `even` spreads them over the trajectories. `total_loss` always uses `even`.
    """
    num_trajectories: PositiveInt | None = None
    """Number of trajectories to take the steps from, spread evenly. Unset: all."""
    probes: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    """Number of Lanczos runs. Each begins from its own seeded random vector with a part along the
    gradient. The widest spectrum counts."""
    max_matvecs: Annotated[int, Field(strict=True, ge=2, le=1000)] = 40
    """Most Hessian-vector products per probe."""
    tolerance: PositiveFloat = 0.003
    """Relative Ritz residual below which both ends count as converged. With 0.01 an inner
    eigenvalue sometimes passes for an end (decision 019).
    """
