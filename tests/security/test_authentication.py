"""Nobody without the token learns or changes anything, on any route there is."""

import itertools

import httpx
import pytest

from services.scaler.api.guard import OPEN_PATHS
from tests.patience import ANSWER_S
from tests.security.wire import request, send
from tests.services.scaler.running import TOKEN, Scaler

WRONG = [
    {},
    {"Authorization": ""},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"bearer {TOKEN}"},
    {"Authorization": f"Bearer  {TOKEN}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Cookie": f"token={TOKEN}; Authorization=Bearer {TOKEN}"},
    {"X-Nitro-Token": f"{TOKEN}x"},
    {"X-Nitro-Token": f"Bearer {TOKEN}"},
    {"X-Nitro-Token": TOKEN, "Authorization": f"Bearer {TOKEN}"},
    {"X-Nitro-Token": TOKEN, "Authorization": "Bearer wrong"},
    {"X-Nitro-Token": "wrong", "Authorization": f"Bearer {TOKEN}"},
    {"X-Api-Key": TOKEN, "X-Forwarded-Authorization": f"Bearer {TOKEN}"},
    {"X-Original-URL": "/healthz", "X-Rewrite-URL": "/healthz"},
]


def every_route(scaler: Scaler) -> list[tuple[str, str]]:
    """Return method and path of every route the API describes, ids filled in."""
    paths = scaler.http.get("/openapi.json").json()["paths"]
    return [
        (method.upper(), path.replace("{job_id}", "a").replace("{lease_id}", "a"))
        for path, methods in paths.items()
        for method in methods
        if path not in OPEN_PATHS
    ]


def anonymous(scaler: Scaler) -> httpx.Client:
    return httpx.Client(base_url=scaler.http.base_url, timeout=ANSWER_S)


def test_no_route_answers_without_the_right_header(attacked: Scaler) -> None:
    routes = every_route(attacked)
    assert ("POST", "/v1/jobs") in routes
    assert ("GET", "/metrics") in routes
    with anonymous(attacked) as http:
        for (method, path), headers in itertools.product(routes, WRONG):
            answer = http.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path, headers)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text


def test_every_route_says_so_in_the_description(attacked: Scaler) -> None:
    paths = attacked.http.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, route in methods.items():
            assert ("401" in route["responses"]) == (path not in OPEN_PATHS), (method, path)
    assert "404" in paths["/v1/leases/{lease_id}"]["delete"]["responses"]


def test_a_token_in_the_query_does_not_count(attacked: Scaler) -> None:
    with anonymous(attacked) as http:
        for name in ("token", "access_token", "Authorization", "authorization", "X-Nitro-Token"):
            for method, path in every_route(attacked):
                value = TOKEN if name == "X-Nitro-Token" else f"Bearer {TOKEN}"
                answer = http.request(method, path, params={name: value})
                assert answer.status_code == 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_what_is_open_tells_nothing_about_jobs(attacked: Scaler, path: str) -> None:
    with anonymous(attacked) as http:
        answer = http.get(path)
        assert answer.status_code == 200
        assert TOKEN not in answer.text
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert http.request(method, path).status_code == 405


@pytest.mark.parametrize(
    "target",
    [
        "/healthz/../v1/jobs",
        "/healthz/%2e%2e/v1/jobs",
        "/readyz;/v1/jobs",
        "//v1/jobs",
        "/v1//jobs",
        "/V1/JOBS",
        "/v1/jobs/",
        "/v1/jobs%00/healthz",
        "http://scaler/v1/jobs",
        "/v1/jobs?/healthz",
        "/v1/jobs#/healthz",
    ],
)
def test_no_spelling_of_a_path_gets_around_the_guard(attacked: Scaler, target: str) -> None:
    answer = send(str(attacked.http.base_url), request("GET", target, "Connection: close"))
    assert answer.status in (400, 401)


@pytest.mark.parametrize(
    "headers",
    [
        ["Authorization: Bearer wrong", f"Authorization: Bearer {TOKEN}"],
        [f"X-Nitro-Token: {TOKEN}"] * 2,
    ],
)
def test_two_tokens_are_none(attacked: Scaler, headers: list[str]) -> None:
    twice = request("GET", "/v1/jobs", *headers, "Connection: close")
    assert send(str(attacked.http.base_url), twice).status == 401


def test_nobody_without_the_token_has_a_body_read(attacked: Scaler) -> None:
    head = request("POST", "/v1/jobs", "Content-Length: 1000000000000")
    answer = send(str(attacked.http.base_url), head)
    assert answer.status == 401
