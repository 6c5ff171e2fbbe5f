"""The gradient noise of a round: which steps of which trajectories it is measured over."""

from typing import NamedTuple

from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.batch import TrainingBatch
from services.learner.gradient_noise import Shares, gradient_noise
from services.learner.halved_surrogate import Samples, halved_surrogate, is_halved
from services.learner.mlp_network import MlpActorCritic
from services.learner.sample_choice import evenly_spread
from services.learner.second_lane import Lane
from services.learner.surrogate import policy_surrogate
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

    def samples(self, batch: TrainingBatch) -> Samples:
        """Return them, as what the surrogate at ratio 1 is over."""
        indices = self.chosen.to(batch.observation.device)
        return Samples(batch.observation[indices], batch.action[indices], batch.advantage[indices])

    def is_halved(self, network: ActorCritic) -> bool:
        """Whether halves of them, of whole trajectories each, are worth a core each."""
        return self.num_trajectories % 2 == 0 and is_halved(network, len(self.chosen))

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


def noise_shares(
    network: ActorCritic, batch: TrainingBatch, choice: NoiseChoice, lane: Lane | None
) -> Shares | None:
    """Return what each trajectory has in the gradient of the surrogate at ratio 1.

    None for convolutional networks, whose gradients are no sums of a few outer products.

    Args:
        network: Its present policy is the surrogate's.
        batch: The round's samples.
        choice: Of them.
        lane: May work on half of them; the bits are the same without.
    """
    if not isinstance(network, MlpActorCritic):
        return None
    samples = choice.samples(batch)
    if choice.is_halved(network):
        surrogate = halved_surrogate(network, samples, lane)
    else:
        surrogate = policy_surrogate(network, **samples._asdict())
    return surrogate.shares(choice.num_trajectories)
