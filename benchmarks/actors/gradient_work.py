"""A Hopper's weights and slices in a cache, as a learner leaves them for its functions."""

from torch import Generator

from benchmarks.actors.real_actor import JOB_ID, RealActor
from learning.aggregation.described import LossInWords, NetworkLayout
from learning.data.batch_building import on_policy_batch
from learning.data.minibatch import ShuffledMinibatches
from learning.losses.ppo import PpoRule
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import GradientCall, GradientTask
from shared.contracts.learner_functions import LearnerFunctions
from shared.contracts.leases import hash_of_lease
from shared.gradients.messages import Weights, encode_slice
from shared.hyperparameters.ppo import STANDARD

_ROUND = GradientRound(job_id=JOB_ID, lease_hash=hash_of_lease("benchmark"), round=0)
_VERSION = 0


def publish_slices(cache: GradientCache, actor: RealActor, number: int) -> None:
    """Put equal slices of one fragment into the cache, for calls 0 to `number` - 1."""
    fragments = actor.fragments(1)
    batch = on_policy_batch(
        fragments, actor.network, discount=STANDARD.discount, gae_lambda=STANDARD.gae_lambda
    )
    whole = ShuffledMinibatches(
        batch,
        num_epochs=1,
        minibatch_size=batch.num_samples,
        generator=Generator().manual_seed(0),
        normalise=True,
    )
    samples = next(whole.arrays())
    payload = encode_slice(samples)
    halves = actor.network.halves()
    if halves is None:
        raise RuntimeError("Hopper's network is not dense")
    rule = PpoRule(hyperparameters=STANDARD, kl_coefficient=0.0)
    weights = Weights(
        version=_VERSION,
        flat=actor.network.flat.numpy(),
        network=NetworkLayout.of(*halves).model_dump_json(),
        loss=LossInWords.of(rule, LearnerFunctions()).model_dump_json(),
    )
    cache.publish_slices(_ROUND, dict.fromkeys(range(number), payload))
    cache.publish_weights(_ROUND, _VERSION, weights.encode())


def gradient_event(call: int) -> str:
    """Return the Lambda event of a call, as JSON."""
    return GradientTask(
        job_id=_ROUND.job_id,
        round=_ROUND.round,
        request=call,
        lease_hash=_ROUND.lease_hash,
        call=GradientCall(call=call, base=_VERSION),
        deadline_at=1e12,
    ).model_dump_json()
