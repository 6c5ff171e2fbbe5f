"""The training horizon of a preset: steps after a reset at which a training episode is cut.

How long episodes may be while a policy learns is a hyper-parameter with a large effect of either
sign. With 32 actors of 64 steps Walker2d walks only where its episodes go on, and HalfCheetah is
better where they are cut. `nitro experiment run horizon` measures it; decision 033 says how far.
"""

import re
from typing import Literal

from shared.hyperparameters.presets import ALGORITHMS, Preset

Horizon = int | Literal["limit", "fragment"]

STANDARD_HORIZONS: dict[str, Horizon] = {"HalfCheetah": 64}
"""Horizons of preset `standard` by environment, of any version; `limit` for all others."""
_VERSION = re.compile(r"-v\d+$")


def preset_horizon(preset: Preset, env_id: str = "", algorithm: str = "ppo") -> Horizon:
    """Return a preset's horizon: `fragment` in `paper`, where each fragment begins with a reset.

    Without `env_id` it is that of all environments that have none of their own. SAC and
    CrossQ have whole episodes, as their authors: their fragments are of few steps. So have ARS
    and ES, whose actors play nothing else.
    """
    if ALGORITHMS[algorithm].replays or ALGORITHMS[algorithm].searches:
        return "limit"
    if preset == "paper":
        return "fragment"
    return STANDARD_HORIZONS.get(_VERSION.sub("", env_id), "limit")
