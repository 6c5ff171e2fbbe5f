"""Global truncation of importance ratios, as factors on advantages; without torch.

With mu the policy that acted, pi a function's policy and pi_j the policies of the other functions,
all on one slice, r = pi / mu and m = min(r, all r_j)::

    paper: r' = min(m, rho)             the gradient of a sample is r' A grad log pi
    code:  r' = min(r, max(m, rho))     as it is differentiated: constant where r' is not r

The advantage's factor is r' / r, because PPO's gradient already contains r. Its clip uses r. So
without others and with rho infinite the factor is exactly 1, and nothing changes.

Stellaris (SC 2024); its code at `rllib/policy/torch_policy_v2.py:384` of the demonstration.

Legend: n samples.
"""

from collections.abc import Sequence

import numpy as np

from learning.arrays import Floats
from shared.contracts.learner_functions import Form


def truncated_ratio(own: Floats, others: Sequence[Floats], *, form: Form, rho: float) -> Floats:
    """Return r' of each sample.

    Args:
        own: r # [n].
        others: r_j # [n] each.
        form: Which r' it is; `off` leaves r as it is.
        rho: Its limit.
    """
    if form == "off":
        return own
    smallest = np.minimum.reduce([own, *others])
    if form == "paper":
        paper: Floats = np.minimum(smallest, np.float32(rho))
        return paper
    code: Floats = np.minimum(own, np.maximum(smallest, np.float32(rho)))
    return code


def advantage_factor(own: Floats, others: Sequence[Floats], *, form: Form, rho: float) -> Floats:
    """Return the factors of the advantages # [n]; arguments as for `truncated_ratio`."""
    kept = truncated_ratio(own, others, form=form, rho=rho)
    if form == "code":
        factor: Floats = np.where(kept == own, np.float32(1.0), np.float32(0.0))
        return factor
    with np.errstate(divide="ignore", invalid="ignore"):
        # A ratio of 0 has no gradient with any factor.
        ratio: Floats = np.where(own > 0.0, kept / own, np.float32(0.0))
    return ratio
