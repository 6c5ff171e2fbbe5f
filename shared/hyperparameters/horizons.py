"""The training horizon of a preset: steps after a reset at which a training episode is cut.

How long episodes may be while a policy learns is a hyper-parameter with a large effect of either
sign: Walker2d learns to walk where its episodes go on to the environment's limit, HalfCheetah finds
its fast gait where they are cut early. `nitro experiment run horizon` measures it; decision 033
says how far it was measured.
"""

import re
from typing import Literal

from shared.hyperparameters.presets import Preset

Horizon = int | Literal["limit", "fragment"]

STANDARD_HORIZONS: dict[str, Horizon] = {"HalfCheetah": 64}
"""What preset `standard` has for an environment, whatever its version; `limit` for all others."""
_VERSION = re.compile(r"-v\d+$")


def preset_horizon(preset: Preset, env_id: str = "") -> Horizon:
    """Return a preset's horizon: `fragment` in `paper`, where each fragment begins with a reset.

    Without `env_id` it is that of all environments that have none of their own.
    """
    if preset == "paper":
        return "fragment"
    return STANDARD_HORIZONS.get(_VERSION.sub("", env_id), "limit")
