"""The learner process: a worker that trains, and HTTP endpoints for health and metrics."""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import torch
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from learning.algorithms.algorithm import Algorithm
from learning.algorithms.network_steps import NetworkSteps
from learning.algorithms.registry import build_algorithm
from learning.cpu.second_process import SecondProcess, second_process
from learning.cpu.torch_settings import configure_thread, configure_torch
from learning.networks.own_network import MAKERS
from learning.ranks.ranks import Ranks
from learning.updates.steps import StepsBuilder
from services.learner.device import DeviceError, require_devices, training_device
from services.learner.own.cores import OwnCores
from services.learner.readiness import Readiness
from services.learner.record.tracking import LearnerMetrics
from services.learner.scaler.client import ScalerClient
from services.learner.settings import LearnerSettings
from services.learner.worker import Worker
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.opening import open_artifacts
from shared.artifacts.store import ArtifactError, ArtifactStore
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheError
from shared.cache.gradients import GradientCache
from shared.contracts.jobs import Job
from shared.environments.packages import imported_on_call, maker_env_id
from shared.service.aws_credentials import process_credentials
from shared.service.http_client import HttpSetupError
from shared.service.logs import configure_logging
from shared.service.serving import CANNOT_START, keep_exit_code, listen, settings_text
from shared.service.threads import essential_thread

_CPU = torch.device("cpu")
_NEEDED = ("scaler", "cache")


def build_worker(
    settings: LearnerSettings,
    artifacts: ArtifactStore,
    metrics: LearnerMetrics,
    device: torch.device,
    second_process: SecondProcess | None,
    ranks: Ranks | None = None,
) -> Worker:
    """Wire the worker: the only place that constructs its clients.

    Raises:
        CacheError: The cache URL is malformed.
        HttpSetupError: The scaler's URL, or a proxy or certificates of the environment, cannot be
            used.
    """
    token = settings.bearer_token()
    readiness = Readiness(_NEEDED)

    def connect_scaler() -> ScalerClient:
        return ScalerClient(
            settings.scaler_url,
            token,
            patience_s=settings.scaler_patience_s,
            on_try=partial(readiness.report, "scaler"),
        )

    connect_scaler().close()  # errors of its construction show at the start

    sign = process_credentials()
    credentials = settings.cache_credentials(sign)
    url = settings.cache_url.get_secret_value()
    return Worker(
        learner_id=settings.learner_id,
        kind=settings.learner_kind,
        job_id=settings.job_id,
        connect_scaler=connect_scaler,
        cache=TrajectoryCache(url, credentials=credentials),
        gradient_cache=GradientCache(url, credentials=credentials),
        own_cores=OwnCores(
            connect_cache=lambda: TrajectoryCache(url, credentials=credentials),
            most=settings.own_actors,
            ahead=settings.own_actors_ahead,
            variables=settings.own_actor_variables,
            credentials=sign if settings.cache_auth == "iam" else None,
        ),
        build_algorithm=algorithm_builder(device, second_process, ranks),
        artifacts=artifacts,
        metrics=metrics,
        device=str(device),
        max_reopenings=settings.max_reopenings,
        readiness=readiness,
    )


def algorithm_builder(
    device: torch.device, second_process: SecondProcess | None, ranks: Ranks | None
) -> Callable[[Job, StepsBuilder | None], Algorithm]:
    """Return a function that builds a job's algorithm, where it computes its gradients.

    The function takes the job, and its gradient steps if functions compute them.
    """

    def algorithm(job: Job, on_functions: StepsBuilder | None) -> Algorithm:
        if on_functions is not None:
            # Gradients of functions are aggregated here, on a CPU.
            return build_algorithm(job, device=_CPU, steps=on_functions)
        if ranks is None or job.spec.is_recurrent:  # ranks share single samples, not sequences
            # With overlapping rounds, actors work at the same time: there is no spare core for a
            # process.
            process = second_process if job.spec.open_rounds == 1 else None
            return build_algorithm(job, device=device, steps=NetworkSteps.beside(process))
        ranks.start()  # they load while the first round is rolled out
        return build_algorithm(job, device=device, steps=ranks.steps)

    return algorithm


@contextmanager
def other_ranks(settings: LearnerSettings, device: torch.device) -> Iterator[Ranks | None]:
    """Yield the other ranks, not started yet, and end them; None without any."""
    if settings.learner_ranks == 1:
        yield None
        return
    with Ranks(
        settings.learner_ranks,
        on_gpu=device.type == "cuda",
        threads=settings.torch_threads,
        start_timeout_s=settings.rank_start_timeout_s,
        timeout_s=settings.rank_timeout_s,
    ) as ranks:
        yield ranks


def create_app(
    worker: Worker, registry: CollectorRegistry, on_done: Callable[[], None] = lambda: None
) -> Starlette:
    """Return the health and metrics endpoints; the worker runs as long as they do.

    `on_done` is called when it has nothing left to do.
    """

    def work() -> None:
        configure_thread()
        worker.run()
        on_done()

    thread = essential_thread("worker", work)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        thread.start()
        yield
        worker.stop()
        thread.join()

    def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def readyz(_: Request) -> Response:
        missing = worker.readiness.missing
        if not missing:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "missing": missing}, status_code=503)

    def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    endpoints = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    routes = [Route(path, endpoint) for path, endpoint in endpoints.items()]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> int:
    """Run the learner until SIGTERM or SIGINT; return the process's exit status."""
    try:
        settings = LearnerSettings()
        settings.bearer_token()
        artifacts = open_artifacts(settings.artifact_location, region=settings.aws_region)
        if isinstance(artifacts, LocalArtifacts):
            artifacts.require_writable()
    except ValidationError as error:
        return _refuse(settings_text(error))
    except ValueError as error:
        return _refuse(str(error))
    except ArtifactError as error:
        return _refuse(f"NITRO_RUNS_DIR or NITRO_ARTIFACTS: {error}")
    configure_logging(settings.log_level)
    configure_torch(settings.torch_threads)
    try:
        device = training_device(settings.device)
        require_devices(device, settings.learner_ranks)
    except DeviceError as error:
        return _refuse(str(error))
    MAKERS.update({maker_env_id(name): imported_on_call(name) for name in settings.networks})
    # Before anything here has a thread or a socket; NumPy's BLAS ends its own at a fork.
    alone = settings.torch_threads == settings.learner_ranks == 1
    forked = second_process(device) if alone else None
    try:
        listener = listen(settings.host, settings.learner_port)
    except OSError as error:
        return _refuse(
            f"cannot listen on {settings.host}:{settings.learner_port}: "
            f"{error.strerror or error}; choose another NITRO_LEARNER_PORT or NITRO_HOST"
        )
    registry = CollectorRegistry()
    with listener, other_ranks(settings, device) as ranks:
        try:
            metrics = LearnerMetrics(registry)
            worker = build_worker(settings, artifacts, metrics, device, forked, ranks)
        except (CacheError, HttpSetupError) as error:
            return _refuse(str(error))
        _serve(worker, registry, listener)
    return 0


def _serve(worker: Worker, registry: CollectorRegistry, listener: socket.socket) -> None:
    """Run until shutdown, or until the worker is done."""

    def end() -> None:
        server.should_exit = True

    app = create_app(worker, registry, on_done=end)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="warning"))
    keep_exit_code()
    server.run(sockets=[listener])


def _refuse(why: str) -> int:
    sys.stderr.write(f"learner cannot start: {why}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
