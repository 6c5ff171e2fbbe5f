"""The worker through a whole job: what it reports, and what a death at any moment costs."""

import errno
import json
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from prometheus_client import CollectorRegistry

from learning.algorithms.algorithm import Algorithm
from learning.algorithms.policy_update import PolicyUpdate
from learning.algorithms.registry import build_algorithm
from learning.ranks.ranks import RankLostError
from learning.updates.steps import StepsBuilder
from services.learner.own.cores import OwnCores
from services.learner.readiness import Readiness
from services.learner.record.tracking import LearnerMetrics, TensorBoard
from services.learner.scaler.client import ScalerClient
from services.learner.worker import Worker
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import ROUNDS_FILE, ArtifactError
from shared.cache import client as cache_module
from shared.cache.client import TrajectoryCache
from shared.cache.gradients import GradientCache
from shared.contracts.jobs import Job
from shared.contracts.leases import FinishRequest
from shared.contracts.rounds import EvaluationResult, RoundLine, RoundPlan, RoundRequest
from tests.services.learner.scripted_scaler import (
    FINISHED_AT,
    REFUSED,
    UNAVAILABLE,
    ScriptedScaler,
    deliver_all,
    fail_actors,
    job,
    serving,
)

_JOBS = count()
_ROUNDS = 2


class Killed(BaseException):
    """The process is gone; no `except Exception` sees it."""


class Fuse:
    """Kills the learner at its n-th touch of the world outside."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.touches: list[str] = []
        self._kill_at = kill_at

    def burn(self, what: str) -> None:
        self.touches.append(what)
        if len(self.touches) - 1 == self._kill_at:
            raise Killed(what)


class FusedArtifacts(LocalArtifacts):
    """A folder whose learner may die before any change of it, or in the middle of a line."""

    def __init__(self, root: Path, fuse: Fuse) -> None:
        super().__init__(root)
        self._fuse = fuse

    def write(self, job_id: str, name: str, data: bytes) -> None:
        self._fuse.burn(f"write {name}")
        super().write(job_id, name, data)

    def append(self, job_id: str, name: str, line: str) -> None:
        try:
            self._fuse.burn(f"append {name}")
        except Killed:
            super().append(job_id, name, line[: len(line) // 2])
            raise
        super().append(job_id, name, line)

    def delete(self, job_id: str, folder: str) -> None:
        self._fuse.burn(f"delete {folder}")
        super().delete(job_id, folder)


class FusedCache(TrajectoryCache):
    """A connection whose learner may die before any command."""

    fuse: Fuse

    def _run(self, command: str, *args: str | bytes | int) -> object:
        self.fuse.burn(f"cache {command}")
        return super()._run(command, *args)

    def close_round(self, job_id: str, round: int) -> cache_module.RoundCounters:
        self.fuse.burn("cache close")
        return super().close_round(job_id, round)

    def free_round(self, job_id: str, round: int) -> None:
        self.fuse.burn("cache free")
        super().free_round(job_id, round)


class Learner:
    """A worker as the application wires it, in the test's own thread."""

    def __init__(
        self,
        scaler: ScriptedScaler,
        cache_url: str,
        runs: Path,
        fuse: Fuse | None = None,
        *,
        artifacts: LocalArtifacts | None = None,
        job_id: str | None = None,
    ) -> None:
        self._scaler, self._runs = scaler, runs
        fuse = fuse or Fuse()
        cache = FusedCache(cache_url)
        cache.fuse = fuse

        def algorithm(made: Job, steps: StepsBuilder | None) -> Algorithm:
            return build_algorithm(made, device=torch.device("cpu"), steps=steps)

        self.registry = CollectorRegistry()
        self.worker = Worker(
            learner_id="learner-1",
            kind=None if job_id is None else "gpu",
            job_id=job_id,
            connect_scaler=lambda: ScalerClient(
                scaler.url,
                None,
                patience_s=1.0,
                on_try=lambda why: self.worker.readiness.report("scaler", why),
            ),
            cache=cache,
            build_algorithm=algorithm,
            gradient_cache=GradientCache(cache_url),
            own_cores=OwnCores(
                connect_cache=lambda: TrajectoryCache(cache_url), most=0, variables={}
            ),
            artifacts=artifacts or FusedArtifacts(runs, fuse),
            metrics=LearnerMetrics(self.registry),
            device="cpu",
            max_reopenings=1,
            readiness=Readiness(("scaler", "cache")),
        )
        scaler.on_finish = self.worker.stop

    def run(self) -> None:
        self.worker.run()

    def finish(self) -> FinishRequest:
        """Run; return what is told of the job's end."""
        self.run()
        (finish,) = self._scaler.finished
        return finish

    def described(self) -> Job:
        """Return the job as its folder has it."""
        file = self._runs / self._scaler.job.job_id / "job.json"
        return Job.model_validate_json(file.read_bytes())


@contextmanager
def _scaler(
    cache_url: str, *, rounds: int = _ROUNDS, **changes: object
) -> Iterator[ScriptedScaler]:
    with serving(job(f"worker-{next(_JOBS)}", **changes), cache_url, rounds=rounds) as scaler:
        scaler.changes = {"num_evaluations": 2}
        yield scaler


@pytest.fixture
def scaler(cache_url: str) -> Iterator[ScriptedScaler]:
    with _scaler(cache_url) as made:
        yield made


@pytest.fixture
def learner(scaler: ScriptedScaler, cache_url: str, tmp_path: Path) -> Learner:
    return Learner(scaler, cache_url, tmp_path)


def _files(runs: Path, job_id: str) -> tuple[bytes, bytes, Sequence[Any]]:
    """Final state, final policy, and the record without times, job id and settled bill."""
    newest = sorted((runs / job_id / "checkpoints").iterdir())[-1]
    assert newest.name == f"{_ROUNDS:06d}"
    lines = [json.loads(text) for text in (runs / job_id / ROUNDS_FILE).read_text().splitlines()]
    for line in lines:
        for name in ("job_id", "age_s"):
            del line["plan"][name]
        if line["result"]:
            del line["result"]["timing"]
        if line["curvature"]:
            del line["curvature"]["elapsed_s"]
    return (
        (newest / "state.safetensors").read_bytes(),
        (newest / "policy.safetensors").read_bytes(),
        lines,
    )


def _whole_run(
    cache_url: str, runs: Path, **changes: Any
) -> tuple[list[str], tuple[bytes, bytes, Sequence[Any]]]:
    fuse = Fuse()
    with _scaler(cache_url, **changes) as scaler:
        Learner(scaler, cache_url, runs, fuse).run()
        assert scaler.finished[0].status == "succeeded"
        return fuse.touches, _files(runs, scaler.job.job_id)


@pytest.mark.parametrize("horizon", ["fragment", "limit"])
def test_a_death_at_any_moment_changes_neither_weights_nor_record(
    cache_url: str, tmp_path: Path, horizon: str
) -> None:
    episodes = {"horizon": horizon}
    touches, expected = _whole_run(cache_url, tmp_path, episodes=episodes)
    # Where episodes go on, an actor's return is the number of the fragment in its episode.
    second = [1.0] * 4 if horizon == "limit" else [0.0, 1.0, 2.0, 3.0]
    assert expected[2][1]["result"]["episode_returns"] == second
    final = EvaluationResult.model_validate(expected[2][-1]["evaluation"])
    assert {"cache close", "append rounds.jsonl", "write checkpoints/000001/state.json"} < {
        *touches
    }
    closes = [i for i, touch in enumerate(touches) if touch == "cache close"]
    # From one round's close to the next one's, and the end; in between everything repeats.
    for kill_at in (*range(closes[0], closes[1]), *range(closes[2], len(touches))):
        touch = touches[kill_at]
        with _scaler(cache_url, episodes=episodes) as scaler:
            with pytest.raises(Killed):
                Learner(scaler, cache_url, tmp_path, Fuse(kill_at)).run()
            if not scaler.finished:
                Learner(scaler, cache_url, tmp_path).run()
            where = f"killed at touch {kill_at}: {touch}"
            assert scaler.finished[0].status == "succeeded", (where, scaler.finished[0].error)
            assert all(request.attempt == 0 for _, request in scaler.asked), where
            assert _files(tmp_path, scaler.job.job_id) == expected, where
            assert scaler.finished[0].final_evaluation == final, where


def test_a_death_while_rounds_overlap_lets_no_episode_begin_anew(
    cache_url: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "algorithm": "impala",
        "hyperparameters": {"hidden_sizes": [8]},
        "rounds_in_flight": 2,
        "episodes": {"horizon": "limit"},
        "rounds": 4,
    }
    fuse = Fuse()
    with _scaler(cache_url, **changes) as scaler:
        Learner(scaler, cache_url, tmp_path, fuse).run()
    closes = [i for i, touch in enumerate(fuse.touches) if touch == "cache close"]
    # From the first checkpoint, which knows of an open round, to the end of the next round.
    for kill_at in range(fuse.touches.index("cache free"), closes[1] + 1):
        with _scaler(cache_url, **changes) as scaler:
            with pytest.raises(Killed):
                Learner(scaler, cache_url, tmp_path, Fuse(kill_at)).run()
            Learner(scaler, cache_url, tmp_path).run()
            where = f"killed at touch {kill_at}: {fuse.touches[kill_at]}"
            assert scaler.finished[0].status == "succeeded", (where, scaler.finished[0].error)
            texts = (tmp_path / scaler.job.job_id / ROUNDS_FILE).read_text().splitlines()
            results = [RoundLine.model_validate_json(text).result for text in texts]
            # Of the streams that open with each of the first two rounds, each goes on once.
            numbers = [result.episode_returns for result in results if result is not None]
            assert numbers == [(n,) * 4 for n in (0.0, 0.0, 1.0, 1.0)], where


def test_the_end_is_reported_and_in_the_folder_last_of_all_and_counted(
    scaler: ScriptedScaler, cache_url: str, tmp_path: Path
) -> None:
    fuse = Fuse()
    learner = Learner(scaler, cache_url, tmp_path, fuse)
    finish = learner.finish()
    assert (finish.status, finish.stop_reason, finish.error) == ("succeeded", "max_rounds", None)
    assert finish.final_evaluation is not None
    assert finish.final_evaluation.returns == (0.0, 1.0)
    described = learner.described()
    assert (described.status, described.stop_reason) == ("succeeded", "max_rounds")
    assert described.finished_at == FINISHED_AT
    assert (described.progress.rounds, described.progress.last_return) == (_ROUNDS, 0.5)
    assert described.spent_usd == 0.25
    # A folder that says when its job finished is complete.
    assert fuse.touches[-1] == "write job.json"
    assert fuse.touches.index("write cost.json") > fuse.touches.index("write ledger.jsonl")
    value = learner.registry.get_sample_value
    assert value("nitro_learner_rounds_total") == _ROUNDS
    assert value("nitro_learner_env_steps_total") == _ROUNDS * 4 * 5
    assert value("nitro_learner_busy") == 0


def test_an_end_that_nobody_hears_of_is_in_the_folder(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    scaler.end = UNAVAILABLE
    learner.run()
    described = learner.described()
    assert (described.status, described.finished_at) == ("succeeded", None)


def test_an_end_without_a_bill_is_in_the_folder_all_the_same(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    scaler.final_bill = UNAVAILABLE
    learner.run()
    assert learner.described().finished_at == FINISHED_AT


def test_nothing_is_written_for_a_job_that_is_deleted_as_soon_as_it_ends(
    cache_url: str, tmp_path: Path
) -> None:
    with _scaler(cache_url) as scaler:
        learner = Learner(scaler, cache_url, tmp_path)

        def delete() -> None:
            learner.worker.stop()
            shutil.rmtree(tmp_path / scaler.job.job_id)

        scaler.on_finish = delete
        scaler.final_bill = (404, {"title": "Not Found", "status": 404, "detail": "no job"})
        learner.run()
    assert not list(tmp_path.iterdir())


def test_an_error_that_cannot_be_sent_as_it_is_ends_the_job_and_not_the_learner(
    cache_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(*_: object) -> list[str]:
        raise ArtifactError("cannot read /runs/caf\udce9")

    # The log escapes it, but a test process could not hand it over with its captured lines.
    monkeypatch.setattr(logging.getLogger("services.learner.worker"), "disabled", True)
    with _scaler(cache_url) as scaler:
        learner = Learner(scaler, cache_url, tmp_path)
        monkeypatch.setattr(LocalArtifacts, "names", names)
        learner.run()
        (finish,) = scaler.finished
    assert finish.status == "failed"
    assert finish.error == "ArtifactError: cannot read /runs/caf?"
    assert learner.described().error == finish.error


def test_a_runs_folder_is_let_go_of_though_its_events_cannot_be_written(
    scaler: ScriptedScaler, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TensorBoard, "close", full)
    monkeypatch.setattr(LocalArtifacts, "release", lambda _, job_id: released.append(job_id))
    finish = learner.finish()
    assert finish.error == "OSError: [Errno 28] No space left on device"
    assert released == [scaler.job.job_id]


def _failing(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
    fail_actors(scaler, made, *range(made.num_actors))


def test_a_lost_round_fails_the_job_with_its_reason(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    scaler.launch = _failing
    finish = learner.finish()
    assert (finish.status, finish.stop_reason) == ("failed", "error")
    assert finish.error is not None
    assert "only 0 of 4 trajectories arrived" in finish.error


def test_a_refused_reopening_stops_the_job_for_that_reason(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    scaler.launch = lambda scaler, made, request: (_failing if made.stop is None else deliver_all)(
        scaler, made, request
    )
    scaler.refusals[(0, 1)] = "budget"
    finish = learner.finish()
    assert (finish.status, finish.stop_reason) == ("stopped", "budget")
    assert finish.final_evaluation is not None
    assert finish.final_evaluation.returns == (0.0, 1.0)


def test_a_learner_asked_to_end_hands_its_job_back(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        deliver_all(scaler, made, request)
        learner.worker.stop()

    scaler.launch = launch
    learner.run()
    assert (scaler.given_up, scaler.finished) == (["lease-1"], [])


def test_a_round_out_of_order_fails_the_job_instead_of_going_in_circles(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    problem = {"title": "Wrong", "status": 422, "detail": "round 1 is out of order"}
    scaler.refusals[(1, 0)] = (422, problem)
    finish = learner.finish()
    assert finish.status == "failed"
    assert finish.error is not None
    assert "out of order" in finish.error
    assert scaler.num_leases == 1


def _run_until_idle(learner: Learner, scaler: ScriptedScaler) -> None:
    def stop() -> None:
        assert scaler.idle.wait(30)
        learner.worker.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    learner.run()
    stopper.join()


def test_a_lost_lease_is_let_go_of_in_silence(scaler: ScriptedScaler, learner: Learner) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        scaler.heartbeat = REFUSED
        scaler.taken = True

    scaler.launch = launch
    _run_until_idle(learner, scaler)
    assert (scaler.finished, scaler.given_up) == ([], [])


def test_a_job_that_another_learner_has_taken_over_is_not_said_to_have_failed(
    scaler: ScriptedScaler, cache_url: str, tmp_path: Path
) -> None:
    class TheirFolder(LocalArtifacts):
        """Refuses the lines of a learner that has lost its job without having heard of it."""

        def append(self, job_id: str, name: str, line: str) -> None:
            scaler.heartbeat = REFUSED
            scaler.taken = True
            raise ArtifactError(f"cannot write {name}: somebody else changed it")

    learner = Learner(scaler, cache_url, tmp_path, artifacts=TheirFolder(tmp_path))
    _run_until_idle(learner, scaler)
    assert scaler.finished == []
    assert learner.described().status != "failed"


def test_a_damaged_checkpoint_fails_the_job_and_names_the_file(
    scaler: ScriptedScaler, learner: Learner, cache_url: str, tmp_path: Path
) -> None:
    learner.run()
    newest = sorted((tmp_path / scaler.job.job_id / "checkpoints").iterdir())[-1]
    damaged = newest / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    scaler.finished.clear()
    before = len(scaler.asked)
    finish = Learner(scaler, cache_url, tmp_path).finish()
    assert len(scaler.asked) == before
    assert finish.status == "failed"
    assert finish.error is not None
    assert str(damaged) in finish.error


def test_a_checkpoint_that_does_not_fit_the_job_is_named_with_what_to_do(
    scaler: ScriptedScaler, learner: Learner, cache_url: str, tmp_path: Path
) -> None:
    learner.run()
    newest = sorted((tmp_path / scaler.job.job_id / "checkpoints").iterdir())[-1]
    manifest = json.loads((newest / "state.json").read_text())
    del manifest["algorithm"]["adam_step"]
    (newest / "state.json").write_text(json.dumps(manifest))
    scaler.finished.clear()
    finish = Learner(scaler, cache_url, tmp_path).finish()
    assert finish.status == "failed"
    assert finish.error is not None
    for words in (f"checkpoint {newest} does not fit", "'adam_step'", "delete the folder"):
        assert words in finish.error


def test_a_folder_that_cannot_be_written_fails_the_job_and_names_it(
    cache_url: str, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.write_text("a file where the folder should be")
    with _scaler(cache_url) as scaler:
        Learner(scaler, cache_url, runs).run()
        (finish,) = scaler.finished
    assert finish.status == "failed"
    assert finish.error is not None
    assert str(runs) in finish.error


class LosesRanks:
    """An algorithm whose first updates lose a rank."""

    def __init__(self, algorithm: Algorithm, losses: list[str]) -> None:
        self._algorithm = algorithm
        self._losses = losses

    def __getattr__(self, name: str) -> object:
        return getattr(self._algorithm, name)

    def update(self) -> PolicyUpdate:
        update = self._algorithm.update()  # parameters move before the rank is lost
        if self._losses:
            raise RankLostError(self._losses.pop())
        return update


def _losing(learner: Learner, scaler: ScriptedScaler, *, times: int) -> None:
    """Have so many updates in a row lose a rank; offer the job again each time."""
    losses = ["rank 1 ended by SIGKILL"] * times

    def algorithm(made: Job, _: StepsBuilder | None) -> Algorithm:
        built = build_algorithm(made, device=torch.device("cpu"))
        return cast(Algorithm, LosesRanks(built, losses))

    def offer_again() -> None:
        scaler.given_up.clear()
        if scaler.finished:
            learner.worker.stop()

    learner.worker._build_algorithm = algorithm
    scaler.on_finish = offer_again


def test_a_job_whose_rank_is_lost_goes_on_from_its_checkpoint(
    scaler: ScriptedScaler, learner: Learner, cache_url: str, tmp_path: Path
) -> None:
    _losing(learner, scaler, times=2)
    assert learner.finish().status == "succeeded"
    assert scaler.num_leases == 3
    found = _files(tmp_path, scaler.job.job_id)
    assert found == _whole_run(cache_url, tmp_path)[1]


def test_a_job_that_loses_ranks_again_and_again_fails_and_names_them(
    scaler: ScriptedScaler, learner: Learner
) -> None:
    _losing(learner, scaler, times=9)
    finish = learner.finish()
    assert (finish.status, finish.stop_reason) == ("failed", "error")
    assert finish.error == "RankLostError: rank 1 ended by SIGKILL"
    assert scaler.num_leases == 3


def test_a_learner_of_one_job_ends_when_that_job_is_gone(
    scaler: ScriptedScaler, cache_url: str, tmp_path: Path
) -> None:
    scaler.taken = True
    Learner(scaler, cache_url, tmp_path, job_id="another-job").run()
    assert scaler.finished == []


def test_a_learner_of_one_job_waits_for_it_while_another_learner_has_it(
    scaler: ScriptedScaler, cache_url: str, tmp_path: Path
) -> None:
    scaler.taken = True
    learner = Learner(scaler, cache_url, tmp_path, job_id=scaler.job.job_id)
    thread = threading.Thread(target=learner.run)
    thread.start()
    assert scaler.idle.wait(30)
    scaler.taken = False
    scaler.on_finish = lambda: None
    thread.join(60)
    assert [finish.status for finish in scaler.finished] == ["succeeded"]
