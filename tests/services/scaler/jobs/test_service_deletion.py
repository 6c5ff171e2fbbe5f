"""Jobs that are forgotten with all that is theirs, over HTTP."""

from collections.abc import Callable

import httpx
import pytest
import redis

from shared.artifacts.local import LocalArtifacts
from shared.cache.client import TrajectoryCache
from shared.contracts.problem import Problem
from tests.services.scaler.running import Scaler, StartScaler, result


def test_a_finished_job_can_be_forgotten_with_its_files(
    scaler: Scaler, cache: TrajectoryCache
) -> None:
    job = scaler.submit(actors={"min": 1, "max": 1})
    folder = scaler.runs_dir / job.job_id
    (folder / "checkpoints").mkdir(parents=True)
    path = f"/v1/jobs/{job.job_id}"
    lease = scaler.lease()
    scaler.round(lease, 0)
    cache.publish_policy(job.job_id, 0, b"weights")
    assert scaler.http.delete(path).status_code == 409
    scaler.finish(lease)
    assert scaler.http.delete(path).status_code == 204
    assert scaler.http.delete(path).status_code == 404
    assert not folder.exists()
    assert cache.fetch_policy(job.job_id, 0) is None


def test_files_that_cannot_be_removed_are_named_and_the_job_is_kept(scaler: Scaler) -> None:
    job = scaler.submit()
    scaler.http.post(f"/v1/jobs/{job.job_id}/stop")
    scaler.runs_dir.mkdir()
    in_the_way = scaler.runs_dir / job.job_id
    in_the_way.touch()
    response = scaler.http.delete(f"/v1/jobs/{job.job_id}")
    assert response.status_code == 503
    assert str(in_the_way) in Problem.model_validate_json(response.content).detail
    assert scaler.job(job.job_id).status == "stopped"


def during_file_removal(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen while a job's files are being removed."""
    remove = LocalArtifacts.delete_job

    def slowly(files: LocalArtifacts, job_id: str) -> None:
        happens()
        remove(files, job_id)

    monkeypatch.setattr(LocalArtifacts, "delete_job", slowly)


def test_a_deleted_job_leaves_nothing_in_the_cache(
    scaler: Scaler, cache: TrajectoryCache, cache_url: str
) -> None:
    lease = scaler.begin(actors={"min": 2, "max": 2}, evaluation={"every_rounds": 0})
    for index in range(5):
        scaler.played(lease, index, previous=result(index - 1) if index else None)
        cache.publish_policy(lease.job.job_id, index, b"w")
        for actor in range(2):
            cache.store_result(
                lease.job.job_id, index, mode="sample", actor_index=actor, payload=b"t"
            )
        cache.close_round(lease.job.job_id, index)
        cache.free_round(lease.job.job_id, index)
        cache.delete_policy(lease.job.job_id, index - 2)
    scaler.finish(lease, status="failed", stop_reason="error")
    assert scaler.http.delete(f"/v1/jobs/{lease.job.job_id}").status_code == 204
    with redis.Redis.from_url(cache_url) as server:
        assert server.keys(f"*{lease.job.job_id}*") == []


@pytest.mark.parametrize(
    ("call", "body"),
    [("resume", {}), ("scaling", {"scaling": {"policy": "fixed", "num_actors": 4}})],
)
def test_a_job_neither_resumes_nor_changes_while_it_is_deleted(
    scaler: Scaler, call: str, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scaler.submit()
    path = f"/v1/jobs/{job.job_id}"
    scaler.http.post(f"{path}/stop")
    answers: list[httpx.Response] = []
    during_file_removal(
        monkeypatch, lambda: answers.append(scaler.http.post(f"{path}/{call}", json=body))
    )
    assert scaler.http.delete(path).status_code == 204
    (refused,) = answers
    assert refused.status_code == 409
    assert "is being deleted" in Problem.model_validate_json(refused.content).detail
    assert scaler.http.get(path).status_code == 404


def test_a_deletion_that_failed_is_repeated_and_cannot_be_undone(scaler: Scaler) -> None:
    job = scaler.submit()
    path = f"/v1/jobs/{job.job_id}"
    scaler.http.post(f"{path}/stop")
    scaler.runs_dir.mkdir()
    in_the_way = scaler.runs_dir / job.job_id
    in_the_way.touch()
    for _ in range(2):
        assert scaler.http.delete(path).status_code == 503
        assert scaler.http.post(f"{path}/resume").status_code == 409
    in_the_way.unlink()
    assert scaler.http.delete(path).status_code == 204
    assert scaler.http.get(path).status_code == 404


def test_a_job_is_deleted_though_its_last_actors_are_booked_meanwhile(
    start_scaler: StartScaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_scaler(finish_wait_s=0.0) as scaler:
        may_end = scaler.lambdas.hold_rollouts()
        lease = scaler.begin(actors={"min": 1, "max": 1}, evaluation={"every_rounds": 0})
        scaler.round(lease, 0)
        scaler.lambdas.wait_events("sample", 1)
        scaler.finish(lease)

        def end_them() -> None:
            may_end.set()
            scaler.landed(lease.job.job_id)

        during_file_removal(monkeypatch, end_them)
        assert scaler.http.delete(f"/v1/jobs/{lease.job.job_id}").status_code == 204
        assert scaler.http.get(f"/v1/jobs/{lease.job.job_id}").status_code == 404
