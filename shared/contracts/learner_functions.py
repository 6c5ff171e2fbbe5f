"""How learner functions share the gradients of an update, and how their gradients are put together.

Sources named in the fields: *Paper* is Stellaris (SC 2024), *code* its published demonstration
(IntelliSys-Lab/Stellaris-SC24 at 863ac52), *ours* a choice of ours. Where paper and code differ,
`paper` and `code` are the two forms and `off` leaves the rule out.
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
    """Functions at work at a time. Code: 4 learners."""
    slices: Annotated[int, Field(strict=True, ge=1, le=256)] = 16
    """Parts of a round's samples. A function computes the gradient of one. Code: 4. Ours: 16."""
    objective: Objective = "clipped"
    """`clipped`: the ratio is to the policy that acted. `decoupled`: that ratio is a weight, and
    the clip is around the policy that the function was given (Hilton et al. 2022). Paper:
    `clipped`."""
    truncation: Form = "paper"
    """Importance ratios of a function's policy, truncated. `paper`: the smallest over the policies
    that functions work on, at most `rho`. `code`: its own, at most the larger of that smallest and
    `rho`."""
    rho: PositiveFloat = 1.0
    """Limit of truncated ratios. Code: 1."""
    threshold: Form = "paper"
    """When gradients are aggregated. The bound on their mean staleness falls as training goes on.
    `paper`: from the largest staleness of the first update that has any, times `decay` an update.
    `code`: from the mean of that update, rounded up. `off`: every gradient at once. A full queue,
    with a gradient for each function, is always aggregated."""
    decay: Annotated[Number, Field(gt=0, le=1)] = 0.9
    """Factor on the bound in each update. Code: 0.9."""
    weighting: Form = "paper"
    """Weight of a gradient of staleness s above 1. `paper`: s^(-1/v). `code`: the same of the
    number of steps instead, and 1 where that is below `decay`, which makes every weight 1 by
    default."""
    v: PositiveFloat = 3.0
    """Root in the weight. Code: 3. A digest of the paper has 2."""
    aggregation: Aggregation = "mean"
    """`mean`: the weighted mean of the gradients, one Adam step. `sequential`: one step each, in
    the order they came. Paper: `mean`. Code: `sequential`."""
    step_size: StepSize = "sqrt"
    """Adam's step size for a step of n samples, where the hyper-parameter `minibatch_size` is m:
    times the root of n/m (`sqrt`), times n/m (`linear`), or as it is (`fixed`). Functions take
    fewer, larger steps than a learner that computes for itself. Paper and code: `fixed`. Ours:
    `sqrt` (Malladi et al. 2022)."""
    drop_stragglers: bool = True
    """Whether gradients older than the first bound are dropped and counted. Ours."""
    local_passes: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    """Gradient steps of a function on its slice, each along its own gradient. The change of the
    weights is then taken for the gradient (local SGD). Paper: 1."""
    local_rate: PositiveFloat = 0.01
    """Step size of those steps. Ours."""
