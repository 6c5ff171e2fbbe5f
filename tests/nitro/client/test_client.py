"""The client against the real scaler, emulator, actors and learner."""

import inspect
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from nitro.client.client import NitroClient
from nitro.client.errors import ApiError, ApiUnreachableError, JobRefusedError, problem_lines
from nitro.client.follow import RoundFeed, Snapshot, follow
from nitro.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.problem import FieldError, Problem
from shared.contracts.stop_rule import StopRule


def last_look(client: NitroClient, job_id: str, system: LocalSystem) -> Snapshot:
    *_, last = follow(client, job_id, check=system.check, every_s=0.05)
    return last


def test_a_job_is_submitted_followed_and_billed(
    client: NitroClient, system: LocalSystem, runs_dir: Path, tiny_job: JobSpec
) -> None:
    job = client.submit(tiny_job)
    assert job.status in ("checking", "queued")
    last = last_look(client, job.job_id, system)
    assert last.job.status == "succeeded"
    assert [record.plan.round for record in last.records if record.result] == [0, 1]
    rounds = list(client.every_round(job.job_id))
    assert len(rounds) == last.job.progress.rounds == tiny_job.stop.max_rounds
    *before, ending = last.records
    assert (rounds, ending.plan.stop) == (before, "max_rounds")
    assert RoundFeed(client, job.job_id).fetch() == last.records
    cost = client.cost(job.job_id)
    lines = client.every_line(job.job_id)
    assert cost.settled_usd == pytest.approx(sum(line.amount_usd for line in lines))
    assert cost.settled_usd > 0
    assert (runs_dir / job.job_id / "rounds.jsonl").is_file()

    client.delete(job.job_id)
    assert not (runs_dir / job.job_id).exists()
    with pytest.raises(ApiError) as caught:
        client.get(job.job_id)
    assert caught.value.problem.status == 404
    assert caught.value.exit_code == EXIT_USAGE


def test_a_job_that_made_all_its_rounds_goes_on_as_if_it_had_had_more(
    client: NitroClient, system: LocalSystem, tiny_job: JobSpec
) -> None:
    def trained(job_id: str) -> Snapshot:
        last = last_look(client, job_id, system)
        assert (last.job.status, last.job.stop_reason) == ("succeeded", "max_rounds")
        return last

    more = tiny_job.stop.max_rounds + 2
    longer = tiny_job.stop.model_copy(update={"max_rounds": more})
    whole = trained(client.submit(tiny_job.model_copy(update={"stop": longer})).job_id)
    short = trained(client.submit(tiny_job).job_id)
    client.resume(short.job.job_id, max_rounds=more)
    resumed = trained(short.job.job_id)

    assert resumed.finished_rounds == whole.finished_rounds == more
    for ours, theirs in zip(resumed.records, whole.records, strict=True):
        assert (ours.plan.ratio, ours.plan.num_actors) == (
            theirs.plan.ratio,
            theirs.plan.num_actors,
        )
    assert resumed.job.progress == whole.job.progress


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"budget_usd": -1.0}, "budget_usd: Input should be greater than 0, got -1.0"),
        ({"max_rounds": 0}, "max_rounds: Input should be greater than or equal to 1, got 0"),
        ({"max_wall_s": -1.0}, "max_wall_s: Input should be greater than 0, got -1.0"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name_before_anything_is_sent(
    limits: dict[str, Any], complaint: str
) -> None:
    with (
        NitroClient("http://127.0.0.1:9", "a-token") as nobody,
        pytest.raises(CommandError) as caught,
    ):
        nobody.resume("hopper-v5-3f2a", **limits)
    assert (str(caught.value), caught.value.exit_code) == (complaint, EXIT_USAGE)


def test_the_same_key_gives_the_same_job(
    client: NitroClient, system: LocalSystem, tiny_job: JobSpec
) -> None:
    with pytest.raises(CommandError, match="--idempotency-key: must be 1 to 128 visible ASCII"):
        client.submit(tiny_job, idempotency_key="zweimal é")
    first = client.submit(tiny_job, idempotency_key="twice")
    assert client.submit(tiny_job, idempotency_key="twice").job_id == first.job_id
    last_look(client, first.job_id, system)


def test_jobs_are_listed_newest_first_and_by_status(
    client: NitroClient, system: LocalSystem, tiny_job: JobSpec
) -> None:
    ids = [client.submit(tiny_job).job_id for _ in range(2)]
    assert [job.job_id for job in client.every_job()][:2] == ids[::-1]
    for job_id in ids:
        last_look(client, job_id, system)
    finished = {job.job_id for job in client.jobs(status="succeeded").jobs}
    assert set(ids) <= finished
    assert not set(ids) & {job.job_id for job in client.every_job(status="queued")}


def test_a_refused_job_names_the_field(
    client: NitroClient, system: LocalSystem, tiny_job: JobSpec
) -> None:
    checked = client.submit(tiny_job.model_copy(update={"env_id": "CartPol-v1"}))
    with pytest.raises(JobRefusedError) as told:
        client.admitted(checked)
    expected = "env_id: 'CartPol-v1' is no registered environment; did you mean "
    assert str(told.value).startswith(expected)
    assert "CartPole-v1" in str(told.value)
    assert told.value.exit_code == EXIT_USAGE
    refused = last_look(client, checked.job_id, system).job
    assert (refused.status, refused.stop_reason) == ("failed", "refused")
    with pytest.raises(ApiError) as caught:
        client.submit(tiny_job.model_copy(update={"stop": StopRule(budget_usd=1e-9)}))
    assert caught.value.problem.status == 422
    assert str(caught.value).startswith("stop.budget_usd: $1e-09 is below")


def test_a_token_no_header_can_carry_is_not_quoted(system: LocalSystem) -> None:
    with (
        NitroClient(system.api_url, "hush\nhush") as careless,
        pytest.raises(ApiUnreachableError, match="cannot be sent") as caught,
    ):
        careless.jobs()
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_wrong_token_is_refused(system: LocalSystem) -> None:
    with NitroClient(system.api_url, "wrong") as stranger, pytest.raises(ApiError) as caught:
        stranger.jobs()
    assert caught.value.problem.status == 401
    assert "wrong" not in str(caught.value)


def test_a_job_id_cannot_leave_its_path(client: NitroClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.get("../../healthz?x=")
    assert caught.value.problem.status in (404, 422)


def test_nobody_there_is_told_apart_from_a_refusal() -> None:
    with NitroClient("http://127.0.0.1:1", "t") as lost, pytest.raises(ApiUnreachableError) as none:
        lost.jobs()
    assert none.value.exit_code == EXIT_FAILED
    assert "http://127.0.0.1:1" in str(none.value)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "SSL_CERT_FILE"])
def test_a_proxy_or_certificates_that_cannot_be_used_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "socks5://127.0.0.1:9")
    with pytest.raises(CommandError, match=variable):
        NitroClient("https://api.example", "t")


def test_an_answer_that_is_not_nitros_is_refused(system: LocalSystem, client: NitroClient) -> None:
    with (
        NitroClient(f"{system.api_url}/healthz?", system.token) as elsewhere,
        pytest.raises((ApiError, ApiUnreachableError)),
    ):
        elsewhere.jobs()


class _Garbled(BaseHTTPRequestHandler):
    """Answers with bytes that are not in the encoding it names."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(b"no gzip")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""


def test_an_answer_that_cannot_be_decoded_is_no_answer() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Garbled) as server:
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with NitroClient(url, "t") as client, pytest.raises(ApiUnreachableError, match=url):
            client.jobs()
        server.shutdown()
        serving.join()


def test_problems_are_lines_per_field_or_their_detail() -> None:
    bare = Problem(title="Conflict", status=409, detail="job is running")
    assert problem_lines(bare) == ["job is running"]
    errors = (FieldError(field="a.b", message="too small"), FieldError(field="c", message="no"))
    assert problem_lines(bare.model_copy(update={"errors": errors})) == ["a.b: too small", "c: no"]


def test_following_ends_when_the_api_stays_away() -> None:
    with NitroClient("http://127.0.0.1:1", "t") as lost, pytest.raises(ApiUnreachableError):
        list(follow(lost, "job", check=lambda: None, every_s=0.01, patience_s=0.0))


def test_following_goes_on_after_a_pause_longer_than_its_patience(
    system: LocalSystem, tiny_job: JobSpec
) -> None:
    class SleepsOnce(NitroClient):
        """Stands still for longer than `patience_s`, and then finds its connection dead."""

        slept = False

        def get(self, job_id: str) -> Job:
            if not self.slept:
                self.slept = True
                Event().wait(0.1)
                raise ApiUnreachableError("connection reset by peer")
            return super().get(job_id)

    with SleepsOnce(system.api_url, system.token) as client:
        job_id = client.submit(tiny_job).job_id
        looks = follow(client, job_id, check=system.check, every_s=0.05, patience_s=0.08)
        assert [*looks][-1].job.status == "succeeded"


@pytest.mark.parametrize("status", [429, 503])
def test_following_goes_on_while_an_endpoint_finds_no_scaler(
    system: LocalSystem, tiny_job: JobSpec, status: int
) -> None:
    class BehindAnEndpoint(NitroClient):
        """Hears from the endpoint twice that nobody is there, as while a scaler is replaced."""

        away = 2

        def get(self, job_id: str) -> Job:
            if self.away:
                self.away -= 1
                raise ApiError(Problem(title="away", status=status, detail="no scaler"))
            return super().get(job_id)

    with BehindAnEndpoint(system.api_url, system.token) as client:
        job_id = client.submit(tiny_job).job_id
        looks = follow(client, job_id, check=system.check, every_s=0.05)
        assert [*looks][-1].job.status == "succeeded"
        client.away = -1
        with pytest.raises(ApiError, match="no scaler"):
            list(follow(client, job_id, check=system.check, every_s=0.01, patience_s=0.0))


def test_submitting_goes_on_while_no_scaler_is_there_and_makes_one_job(
    system: LocalSystem, tiny_job: JobSpec
) -> None:
    """The first answer is lost after the job was made, the second says that nobody is there."""

    class Lossy(httpx.BaseTransport):
        def __init__(self) -> None:
            self.keys: list[str] = []
            self._through = httpx.HTTPTransport()

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/jobs" and request.method == "POST":
                self.keys.append(request.headers["idempotency-key"])
                if len(self.keys) == 1:
                    self._through.handle_request(request).read()
                    raise httpx.ReadError("the connection broke", request=request)
                if len(self.keys) == 2:
                    return httpx.Response(503, text="no target", request=request)
            return self._through.handle_request(request)

        def close(self) -> None:
            self._through.close()

    transport = Lossy()
    with NitroClient(system.api_url, system.token, transport=transport) as client:
        before = {job.job_id for job in client.every_job()}
        job = client.submit(tiny_job)
        assert {job.job_id for job in client.every_job()} - before == {job.job_id}
        assert len(transport.keys) == 3
        assert len(set(transport.keys)) == 1
        client.submit(tiny_job)
        assert len(set(transport.keys)) == 2


def test_following_is_as_patient_as_a_deployment_takes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert "the API is away for less than a minute" in text
    assert inspect.signature(follow).parameters["patience_s"].default > 60
