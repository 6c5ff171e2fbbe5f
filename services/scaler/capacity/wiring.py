"""The capacity keeper, wired from the settings: what it acts on exists only where it is set."""

import math
from collections.abc import Callable

from services.scaler.capacity.decision import CapacityRule
from services.scaler.capacity.heartbeat import TableHeartbeat
from services.scaler.capacity.learner import EcsLearnerService, LearnerWait
from services.scaler.capacity.reconciler import (
    Alarm,
    CapacityReconciler,
    ReconcilerParts,
    WarmFunction,
)
from services.scaler.metrics import Metrics
from services.scaler.settings import Settings
from services.scaler.store.base import JobRecord, Store


def build_reconciler(
    settings: Settings,
    *,
    store: Store,
    function: WarmFunction,
    metrics: Metrics,
    expire: Callable[[str, str | None], None],
    now: Callable[[], float],
    alarm: Alarm,
    exhausted_at: Callable[[JobRecord], float],
) -> CapacityReconciler:
    """Return a keeper with clients of its own, which it closes at its end."""
    parts = ReconcilerParts(
        store=store,
        rule=CapacityRule(
            provisioned=settings.provisioned_concurrency,
            starts_learner=settings.ecs_service is not None,
            longest_job_s=longest_job_s(settings),
            reserved=settings.lambda_reserved_concurrency,
            exhausted_at=exhausted_at,
        ),
        function=function,
        learner=_learner_service(settings),
        heartbeat=_heartbeat(settings),
        metrics=metrics,
        now=now,
        expire=expire,
        wait=LearnerWait(longest_s=settings.learner_wait_s),
        every_s=settings.reconcile_every_s,
    )
    return CapacityReconciler(parts, alarm)


def longest_job_s(settings: Settings) -> float:
    """Return how long a job may run at a time: no bound where its learner is nobody's bill."""
    return math.inf if settings.ecs_service is None else settings.longest_job_s


def _learner_service(settings: Settings) -> EcsLearnerService | None:
    if settings.ecs_cluster is None or settings.ecs_service is None:
        return None
    return EcsLearnerService(
        cluster=settings.ecs_cluster,
        service=settings.ecs_service,
        region=settings.lambda_region,
        timeout_s=settings.lambda_connect_timeout_s,
    )


def _heartbeat(settings: Settings) -> TableHeartbeat | None:
    if settings.ecs_service is None or settings.table is None:
        return None
    return TableHeartbeat(
        table=settings.table,
        region=settings.lambda_region,
        timeout_s=settings.lambda_connect_timeout_s,
    )
