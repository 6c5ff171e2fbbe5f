"""Hyper-parameters that the searches have alike: episodes of perturbed policies, no gradients."""

from typing import Annotated, ClassVar

from pydantic import Field, StrictBool

from shared.contracts.message import NonNegativeFloat, PositiveFloat, PositiveFloat32
from shared.hyperparameters.common import ActionMapping, Hyperparameters, LogStd

MAX_DIRECTIONS = 10_000
"""Most directions of an iteration."""
_MOST_EPISODES = 2 * MAX_DIRECTIONS
"""Most episodes of a round of several iterations: all their returns are recorded with it."""
Directions = Annotated[int, Field(strict=True, ge=1, le=MAX_DIRECTIONS)]


class SearchHyperparameters(Hyperparameters):
    """What ARS and ES have alike. Each names its own values and sources."""

    directions: Directions
    exploration_std: PositiveFloat
    iterations: Annotated[int, Field(strict=True, ge=1, le=1000)] = 10
    """Iterations of a round: its actors are launched once for all of them. A round has fewer if
    there would be more than 20,000 episodes, when the job has its steps, or if functions might
    time out. Weights do not depend on it. Paper: not used. Standard: calls then cost little beside
    their episodes."""
    reward_offset: NonNegativeFloat = 0.0
    """Taken off the reward of each step, where staying alive is rewarded. Returns are reported
    without it. Paper: not used. Standard: not used."""
    observation_normalisation: StrictBool = True
    observation_clip: PositiveFloat32

    action_mapping: ClassVar[ActionMapping] = "clip"
    log_std: ClassVar[LogStd] = "free"

    @property
    def num_episodes(self) -> int:
        """Episodes of an iteration."""
        return 2 * self.directions

    @property
    def most_iterations(self) -> int:
        """Most iterations of a round."""
        return max(1, min(self.iterations, _MOST_EPISODES // self.num_episodes))
