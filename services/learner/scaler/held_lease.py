"""A held lease: renewed in the background, and the channel of stop requests.

A heartbeat thread renews the lease. The round loop checks between its steps whether the job should
stop or the lease is lost; steps are never interrupted.
"""

import logging
import threading
from typing import Self

from services.learner.scaler.client import LeaseLostError, ScalerClient, ScalerError
from shared.contracts.jobs import StopReason
from shared.contracts.leases import Lease

_LOG = logging.getLogger(__name__)


class HeldLease:
    """A context in which the lease is renewed every `heartbeat_every_s` seconds.

    Every lease has its own HTTP client, so that a heartbeat never waits for a round request.
    """

    def __init__(self, lease: Lease, scaler: ScalerClient, shutdown: threading.Event) -> None:
        self.lease_id = lease.lease_id
        self.job = lease.job
        self.epoch = lease.epoch
        self._every_s = lease.heartbeat_every_s
        self._scaler = scaler
        self._shutdown = shutdown
        self._released = threading.Event()
        self._lost = threading.Event()
        self.stop: StopReason | None = None
        """Why the job should end; None without a request."""
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        """Whether another learner may hold the job by now."""
        return self._lost.is_set()

    @property
    def interrupted(self) -> bool:
        """Whether this process was asked to end; the job continues elsewhere."""
        return self._shutdown.is_set()

    @property
    def must_leave(self) -> bool:
        """Whether this learner has to leave the job, which continues elsewhere."""
        return self.lost or self.interrupted

    @property
    def should_leave(self) -> bool:
        """Whether there is any reason to end before the job is done."""
        return self.must_leave or self.stop is not None

    def _beat(self) -> None:
        while not self._released.wait(self._every_s):
            try:
                self.stop = self._scaler.heartbeat(self.lease_id).stop or self.stop
            except LeaseLostError as error:
                _LOG.warning("lease lost", extra={"job": self.job.job_id, "why": str(error)})
                self._lost.set()
                return
            except ScalerError as error:
                _LOG.warning("heartbeat failed", extra={"job": self.job.job_id, "why": str(error)})
            except Exception:
                # Without heartbeats another learner will soon have the job, so this one must leave
                # it.
                _LOG.exception("lease given up", extra={"job": self.job.job_id})
                self._lost.set()
                return
