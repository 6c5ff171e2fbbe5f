"""What the system says of itself."""

from shared.contracts.views.system import SystemView
from tests.services.scaler.running import StartScaler


def test_the_system_says_how_busy_it_is(start_scaler: StartScaler) -> None:
    with start_scaler(viewer_token="for-looking") as scaler:  # noqa: S106
        lease = scaler.begin(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
        gate = scaler.lambdas.hold_rollouts()
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 2)
        viewer = {"Authorization": "Bearer for-looking"}
        answer = scaler.http.get("/v1/system", headers=viewer)
        view = SystemView.model_validate_json(answer.content)
        gate.set()
    assert (view.role, view.concurrency.in_flight, view.concurrency.limit) == ("viewer", 2, 1000)
    assert view.live
    assert view.jobs["running"] == 1
    assert view.cache is not None
    assert 0 < view.cache.used_mb < view.cache.most_mb == 1024
    assert (view.function.name, view.clock) == ("nitro-actor", "projected")
