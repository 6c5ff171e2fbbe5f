"""The gradient noise of a round: which steps of which trajectories it is measured over."""

from typing import NamedTuple

import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.batch import TrainingBatch
from services.learner.gradient_noise import Shares, gradient_noise
from services.learner.mlp_network import MlpActorCritic
from services.learner.sample_choice import evenly_spread, spread_samples
from services.learner.surrogate import PolicySurrogate
from shared.contracts import GradientNoise
from shared.job_spec import DetectorRule

NOISE_TRAJECTORIES = 16
"""Most trajectories whose gradients are compared."""
NOISE_STEPS = 32
"""Most steps of each of them."""


class NoiseChoice(NamedTuple):
    """Equally many steps of each of some trajectories, one trajectory after the other."""

    chosen: Tensor
    """Their indices in the batch, on the CPU # [N] int64."""
    num_trajectories: int

    def noise(self, shares: Shares | None) -> GradientNoise | None:
        """Return the noise that the trajectories' shares in the gradient tell of."""
        return None if shares is None else gradient_noise(shares, num_samples=len(self.chosen))


def noise_choice(batch: TrainingBatch, rule: DetectorRule) -> NoiseChoice:
    """Return what of a batch the noise is measured over.

    At most `NOISE_TRAJECTORIES` trajectories are compared, each by the same number of its steps.
    Steps of one trajectory are alike, so what they say of the variance depends on how many of them
    there are: that must not change with the number of actors, nor with the rule's samples.
    """
    length = batch.num_samples // batch.num_trajectories
    wanted = min(NOISE_TRAJECTORIES, rule.num_trajectories or NOISE_TRAJECTORIES)
    trajectories = evenly_spread(batch.num_trajectories, wanted)
    steps = evenly_spread(length, NOISE_STEPS)
    chosen = (trajectories.unsqueeze(1) * length + steps).flatten()
    return NoiseChoice(chosen, len(trajectories))


def curvature_tells_noise(choice: NoiseChoice, batch: TrainingBatch, rule: DetectorRule) -> bool:
    """Whether the surrogate whose curvature is measured is the one whose noise is.

    So it is where its samples are spread as the noise's are: 512 over 16 trajectories, say, but not
    over 8 or 64. Halves of it are whole trajectories then.
    """
    whole_halves = choice.num_trajectories % 2 == 0
    same = torch.equal(choice.chosen, spread_samples(batch, rule))
    return rule.objective == "surrogate" and whole_halves and same


def noise_shares(network: ActorCritic, batch: TrainingBatch, choice: NoiseChoice) -> Shares | None:
    """Return what each trajectory has in the gradient of the surrogate at ratio 1.

    None for convolutional networks, whose gradients are no sums of a few outer products.
    """
    if not isinstance(network, MlpActorCritic):
        return None
    chosen = choice.chosen.to(batch.observation.device)
    surrogate = PolicySurrogate(
        network,
        observation=batch.observation[chosen],
        action=batch.action[chosen],
        advantage=batch.advantage[chosen],
    )
    return surrogate.shares(choice.num_trajectories)
