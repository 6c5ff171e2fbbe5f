"""How learner functions share the gradients of an update, and how these are aggregated.

Sources named in the fields: *Paper* is Stellaris (SC 2024), *code* its published demonstration
(IntelliSys-Lab/Stellaris-SC24 at 863ac52), *ours* our own choice. Where paper and code differ,
`paper` and `code` select the form, and `off` disables the rule.
"""

from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.message import Message, Number, PositiveFloat

Form = Literal["paper", "code", "off"]
Objective = Literal["clipped", "decoupled"]
Aggregation = Literal["mean", "sequential"]
StepSize = Literal["fixed", "sqrt", "linear"]


class LearnerFunctions(Message):
    """The learner functions of a job with `learner: functions`."""

    num: Annotated[int, Field(strict=True, ge=1, le=64)] = 4
    """Concurrent functions. Code: 4 learners."""
    slices: Annotated[int, Field(strict=True, ge=1, le=256)] = 16
    """Slices of a round's samples, one for each gradient. Code: 4. Ours: 16."""
    objective: Objective = "clipped"
    """`clipped`: the ratio is to the policy that acted. `decoupled`: that ratio is only a weight,
    and the clip is around the policy that the function received (Hilton et al. 2022). Paper:
    `clipped`.
    """
    truncation: Form = "paper"
    """Importance ratios of a function's policy, truncated. `paper`: the smallest over the policies
    that functions work on, at most `rho`. `code`: its own, at most the larger of that smallest and
    `rho`."""
    rho: PositiveFloat = 1.0
    """Limit of truncated ratios. Code: 1."""
    threshold: Form = "paper"
    """When gradients are aggregated. The bound on their mean staleness falls during training.
    `paper`: from the largest staleness of the first update with any, times `decay` per update.
    `code`: from the mean of that update, rounded up. `off`: every gradient at once. A full queue,
    with one gradient per function, is always aggregated.
    """
    decay: Annotated[Number, Field(gt=0, le=1)] = 0.9
    """Factor on the bound in each update. Code: 0.9."""
    weighting: Form = "paper"
    """Weight of a gradient of staleness s above 1. `paper`: s^(-1/v). `code`: the same formula of
    the number of steps, and 1 if that is below `decay`, so that every weight is 1 by default.
    """
    v: PositiveFloat = 3.0
    """Root in the weight. Code: 3. A digest of the paper has 2."""
    aggregation: Aggregation = "mean"
    """`mean`: one Adam step along the weighted mean of the gradients. `sequential`: one step for
    each, in order of arrival. Paper: `mean`. Code: `sequential`.
    """
    step_size: StepSize = "sqrt"
    """Adam's step size for a step of n samples, where the hyper-parameter `minibatch_size` is m:
    times the root of n/m (`sqrt`), times n/m (`linear`), or as it is (`fixed`). Functions take
    fewer, larger steps than a learner alone. Paper and code: `fixed`. Ours: `sqrt` (Malladi et al.
    2022).
    """
    drop_stragglers: bool = True
    """Whether gradients older than the first bound are dropped and counted. Ours."""
    local_passes: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    """Gradient steps of a function on its slice. Above 1, it returns the change of its weights as
    the gradient (local SGD). Paper: 1.
    """
    local_rate: PositiveFloat = 0.01
    """Step size of those steps. Ours."""
