"""A job names an environment that is registered; it can make nobody import, open or fetch."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from tests.services.scaler.running import Scaler

NAMES = [
    "os:system",
    "os.path:join",
    "functions.actor.handler:handler",
    "module:Env-v0",
    "http://127.0.0.1:{port}/env",
    "file:///etc/passwd",
    "/etc/passwd",
    "../../etc/passwd",
    "..",
    "Hopper-v5\n",
    "Hopper-v5; import os",
    "Hopper-v5$(touch {folder}/touched)",
    "`touch {folder}/touched`",
    "{{7*7}}",
    "__import__('os')",
    "x" * 129,
    "",
]
TEXTS = [
    "/etc/passwd",
    "../../../etc/passwd",
    "http://127.0.0.1:{port}/model.xml",
    "file:///etc/passwd",
    "\\\\host\\share\\model.xml",
    "os:system",
    "a\x00b",
    "\ud800",
    "x" * 257,
]


class _Visitors(BaseHTTPRequestHandler):
    seen: list[str] = []  # noqa: RUF012 - one server, one list

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def trap() -> Iterator[int]:
    """Port of a server that notes who comes by."""
    with HTTPServer(("127.0.0.1", 0), _Visitors) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
    assert _Visitors.seen == []


def filled(text: str, *, port: int, folder: Path) -> str:
    return text.replace("{port}", str(port)).replace("{folder}", str(folder))


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_an_environment_is_a_name(attacked: Scaler, tmp_path: Path, trap: int, name: str) -> None:
    name = filled(name, port=trap, folder=tmp_path)
    before = len(attacked.lambdas.events)
    # "/etc/passwd" and the like are spelt as no name may be: no actor is even asked.
    answer = attacked.http.post("/v1/jobs", json={"env_id": name})
    assert answer.status_code == 422
    assert [e["field"] for e in answer.json()["errors"]] == ["env_id"]
    assert len(attacked.lambdas.events) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_keyword_argument_is_no_path_and_no_address(
    attacked: Scaler, tmp_path: Path, trap: int, text: str
) -> None:
    text = filled(text, port=trap, folder=tmp_path)
    before = len(attacked.lambdas.events)
    body = json.dumps({"env_id": "Hopper-v5", "env_kwargs": {"xml_file": text}}).encode()
    headers = {"Content-Type": "application/json"}
    answer = attacked.http.post("/v1/jobs", content=body, headers=headers)
    assert answer.status_code == 422
    assert [e["field"] for e in answer.json()["errors"]] == ["env_kwargs.xml_file"]
    assert len(attacked.lambdas.events) == before


@pytest.mark.parametrize("value", [["os"], {"__class__": "os"}, None])
def test_a_keyword_argument_is_a_scalar(attacked: Scaler, value: object) -> None:
    body = {"env_kwargs": {"xml_file": value}}
    assert attacked.http.post("/v1/jobs", json=body).status_code == 422


@pytest.mark.parametrize("name", ["__class__", "a b", "a;b", "../x", "a" * 129])
def test_a_keyword_has_a_plain_name(attacked: Scaler, name: str) -> None:
    answer = attacked.http.post("/v1/jobs", json={"env_kwargs": {name: 1}})
    assert answer.status_code == 422


@pytest.mark.parametrize("name", ["os:system", "../x", "a/b", "__import__('os')", ""])
def test_a_wrapper_has_a_plain_name(attacked: Scaler, name: str) -> None:
    before = len(attacked.lambdas.events)
    answer = attacked.http.post("/v1/jobs", json={"wrappers": [{"name": name}]})
    assert answer.status_code == 422
    assert [e["field"] for e in answer.json()["errors"]] == ["wrappers.0.name"]
    assert len(attacked.lambdas.events) == before


@pytest.mark.parametrize("name", ["antigravity", "os.path", "gymnasium.wrappers.ClipReward"])
def test_the_actor_wraps_only_with_what_is_registered(name: str) -> None:
    ref = EnvironmentRef.model_validate({"env_id": "CartPole-v1", "wrappers": [{"name": name}]})
    with pytest.raises(UnsupportedEnvironment, match="is no registered wrapper"):
        describe(ref)


@pytest.mark.parametrize("env_id", ["antigravity", "os.path", "this", "ALE/../x", "a/b/c/d"])
def test_the_actor_builds_only_what_is_registered(env_id: str) -> None:
    with pytest.raises(UnsupportedEnvironment, match="is no registered environment"):
        describe(EnvironmentRef(env_id=env_id))


@pytest.mark.parametrize("kwargs", [{"id": "CartPole-v1"}, {"render_mode": "human"}])
def test_the_actor_is_not_talked_into_another_environment(kwargs: dict[str, str]) -> None:
    with pytest.raises(UnsupportedEnvironment, match="is not allowed"):
        describe(EnvironmentRef(env_id="Hopper-v5", env_kwargs=dict(kwargs)))
