"""What a learner leaves in the cache of gradients that it does not wait for any more."""

import threading

import numpy as np

from learning.data.arrays import Floats
from learning.data.samples import Minibatch
from learning.losses.ppo import PpoRule
from services.learner.rounds.gradient_desk import CachedGradientDesk
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.leases import Lease, hash_of_lease
from shared.hyperparameters.ppo import STANDARD

JOB = Job(
    job_id="left-behind",
    spec=JobSpec(preset="standard", learner="functions"),
    status="running",
    created_at=0.0,
)
OF = GradientRound(job_id=JOB.job_id, lease_hash=hash_of_lease("lease"), round=3)


def samples() -> Minibatch[Floats]:
    column = np.zeros((4, 1), np.float32)
    return Minibatch(
        observation=column,
        action=column,
        advantage=column[:, 0],
        value_target=column[:, 0],
        value=column[:, 0],
        log_prob=column[:, 0],
        outputs=column,
    )


def test_an_update_that_is_left_unfinished_leaves_no_slice_behind(cache_url: str) -> None:
    lease = Lease(lease_id="lease", job=JOB, expires_in_s=30.0, heartbeat_every_s=10.0)
    rule = PpoRule(hyperparameters=STANDARD, kl_coefficient=0.0)
    with (
        GradientCache(cache_url) as cache,
        ScalerClient("http://127.0.0.1:1", None, patience_s=0.0) as scaler,
    ):
        held = HeldLease(lease, scaler, threading.Event())
        desk = CachedGradientDesk(job=JOB, cache=cache, scaler=scaler, lease=held)
        desk.open_round(3)
        desk.begin([samples(), samples()])
        desk.publish(7, np.zeros(5, np.float32), rule, forget=[])
        left, _ = cache.fetch(OF, call=1, versions=[7])
        assert left is not None
        desk.leave()
        assert cache.fetch(OF, call=1, versions=[7]) == (None, [None])
        assert cache.store_gradient(OF, 1, b"late") == "late"
        desk.leave()


def test_leaving_does_not_fail_without_a_cache() -> None:
    lease = Lease(lease_id="lease", job=JOB, expires_in_s=30.0, heartbeat_every_s=10.0)
    with (
        GradientCache("redis://127.0.0.1:1/0", timeout_s=0.1) as cache,
        ScalerClient("http://127.0.0.1:1", None, patience_s=0.0) as scaler,
    ):
        held = HeldLease(lease, scaler, threading.Event())
        desk = CachedGradientDesk(job=JOB, cache=cache, scaler=scaler, lease=held)
        desk._num_calls = 1  # as after an update that has begun
        desk.leave()
