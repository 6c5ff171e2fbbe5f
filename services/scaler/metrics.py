"""Prometheus metrics of one scaler, in a separate registry so that several can share a process."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """An operator's metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._count_rounds()
        self._count_actors()
        self._count_jobs_and_capacity()

    def render(self) -> bytes:
        """Return all metrics in Prometheus text format."""
        return generate_latest(self._registry)

    def _count_rounds(self) -> None:
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self.decisions = histogram(
            "nitro_scaler_decision_seconds",
            "Time from a round request to its plan.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5),
        )
        self.launches = histogram(
            "nitro_scaler_launch_seconds",
            "Time from a decision to the request of its last actor.",
            buckets=(0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 60.0),
        )
        self.rounds = counter(
            "nitro_scaler_rounds_total",
            "Plans by the job's stop reason, `none` if it continues.",
            ["stop"],
        )
        self.actors = counter(
            "nitro_scaler_actors_total",
            "Actors requested by the scaling policy, and granted after budget and concurrency.",
            ["stage"],
        )

    def _count_actors(self) -> None:
        counter = partial(Counter, registry=self._registry)
        self.invocations = counter(
            "nitro_scaler_invocations_total",
            "Ended tasks, by the outcome of their result.",
            ["outcome"],
        )
        self.actor_seconds = counter(
            "nitro_scaler_actor_seconds_total",
            "Actors' reported seconds: of rollouts alone, and of whole handlers.",
            ["stage"],
        )
        self.throttles = counter("nitro_scaler_throttles_total", "Invocations answered 429.")
        self.cold_starts = counter(
            "nitro_scaler_cold_starts_total",
            "Actors that had to start an environment first.",
        )
        self.pings = counter(
            "nitro_scaler_pings_total",
            "Pings of idle environments, by result: warm, none, or error.",
            ["found"],
        )
        self.in_flight = Gauge(
            "nitro_scaler_in_flight", "Tasks launched and not ended.", registry=self._registry
        )

    def _count_jobs_and_capacity(self) -> None:
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        self.jobs = gauge("nitro_scaler_jobs", "Jobs by status.", ["status"])
        self.provisioned = gauge(
            "nitro_scaler_provisioned_environments", "Provisioned concurrency asked for."
        )
        self.provisioned_clipped = gauge(
            "nitro_scaler_provisioned_clipped_environments",
            "Wanted environments beyond the account's concurrency.",
        )
        self.learners = gauge("nitro_scaler_learners", "Learners asked for.", ["kind"])
        self.capacity_failures = counter(
            "nitro_scaler_capacity_failures_total",
            "Reconciliations that could not read or change a part of capacity.",
            ["part"],
        )
        self.capacity_degraded = gauge(
            "nitro_scaler_capacity_degraded",
            "1 while a part of capacity is at fault.",
            ["part"],
        )
