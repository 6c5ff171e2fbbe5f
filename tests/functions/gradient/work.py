"""A job's weights and slices in a cache, as a learner puts them there."""

import uuid

import numpy as np

from learning.aggregation.described import LossInWords, NetworkLayout
from learning.algorithms.ppo import Ppo
from learning.arrays import Floats
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import GradientCall, GradientTask
from shared.contracts.learner_functions import LearnerFunctions
from shared.gradients.messages import Weights, encode_slice
from shared.hyperparameters.ppo import STANDARD
from shared.trajectory.columns import Columns
from tests.learning.trajectories import CONTINUOUS

LEASE = "0123456789ab"


class Work:
    """A network, and a slice of samples drawn at random."""

    def __init__(self, functions: LearnerFunctions) -> None:
        self.functions = functions
        self.learner = Ppo(CONTINUOUS, STANDARD, seed=1)
        halves = self.learner.network.halves()
        assert halves is not None
        self.layout = NetworkLayout.of(*halves)
        self.flat: Floats = self.learner.network.flat.numpy()
        generator = np.random.default_rng(0)
        size, actions = CONTINUOUS.observation.shape[0], 2

        def draw(*shape: int) -> Floats:
            return generator.normal(size=shape).astype(np.float32)

        self.samples = Columns(
            observation=draw(40, size),
            action=draw(40, actions),
            advantage=draw(40),
            value_target=draw(40),
            value=draw(40),
            log_prob=draw(40) - 3.0,
            behaviour_log_prob=draw(40) - 3.0,
            outputs=draw(40, 2 * actions),
        )
        self.of = GradientRound(job_id=f"job-{uuid.uuid4().hex[:8]}", lease_hash=LEASE, round=3)

    def weights(self, version: int, flat: Floats) -> bytes:
        loss = LossInWords.of(self.learner._rule, self.functions)
        return Weights(
            version=version,
            flat=flat,
            network=self.layout.model_dump_json(),
            loss=loss.model_dump_json(),
        ).encode()

    def publish(self, cache: GradientCache, *, versions: tuple[int, ...] = (5,)) -> None:
        """Put a slice, call 2, and some versions of the weights into the cache."""
        cache.publish_slices(self.of, {2: encode_slice(self.samples)})
        for version in versions:
            flat = self.flat * np.float32(1.0 + 0.01 * version)
            cache.publish_weights(self.of, version, self.weights(version, flat))

    def task(self, *, deadline_at: float = 1e12, others: tuple[int, ...] = ()) -> GradientTask:
        return GradientTask(
            job_id=self.of.job_id,
            round=3,
            request=0,
            lease_hash=LEASE,
            call=GradientCall(call=2, base=5, others=others),
            deadline_at=deadline_at,
        )
