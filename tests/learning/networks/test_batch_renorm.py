"""Batch renormalisation behind its warm-up."""

import torch

from learning.networks.batch_renorm import NormalisedMlps
from learning.networks.soft_actor_critic import initialise
from shared.policy.blocks import dense_blocks


def test_a_minibatch_like_the_running_statistics_is_seen_as_they_see_it() -> None:
    """Its own statistics are corrected for, as long as they are near: Ioffe, equation 1."""
    torch.manual_seed(0)
    networks = NormalisedMlps(dense_blocks((4, 8, 1), activation="relu"), number=2)
    initialise(0, networks)
    seen = torch.randn(64, 4)
    with torch.no_grad():
        for _ in range(500):
            networks.training_outputs(seen)
            networks.follow()
        seen = 1.3 * seen + 0.3
        expected = networks.outputs(seen)
        networks.minibatches.fill_(100_000)
        found = networks.training_outputs(seen)
        networks.minibatches.zero_()
        by_itself = networks.training_outputs(seen)
    for plain, corrected, one in zip(by_itself, found, expected, strict=True):
        torch.testing.assert_close(corrected, one)
        assert not torch.allclose(plain, one, atol=1e-2)


def test_a_minibatch_far_from_them_is_corrected_within_bounds() -> None:
    (block,) = dense_blocks((1, 1), activation="relu")
    network = NormalisedMlps([block], number=1)
    with torch.no_grad():
        network.networks[0][0].weight.fill_(1.0)
    network.minibatches.fill_(100_000)
    seen = torch.tensor([[90.0], [110.0]])
    (found,) = network.training_outputs(seen)
    torch.testing.assert_close(found, torch.tensor([[-3.0], [3.0]]) + 5.0, rtol=0, atol=1e-4)
