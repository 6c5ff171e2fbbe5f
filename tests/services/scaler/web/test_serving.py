"""The page's files as a scaler serves them: what they are, how large, and under which headers."""

import hashlib
import re

import httpx
import pytest

from services.scaler.web.serving import FOLDER, HEADERS, PAGES, page_files
from tests.patience import ANSWER_S
from tests.services.scaler.running import TOKEN, Scaler

LARGEST_KB = 100


@pytest.fixture
def anybody(lasting_scaler: Scaler) -> httpx.Client:
    return httpx.Client(base_url=lasting_scaler.http.base_url, timeout=ANSWER_S)


def linked(page: str) -> list[str]:
    return re.findall(r'(?:href|src)="(web/[^"]+)"', page)


def test_files_of_others_are_those_that_were_noted() -> None:
    noted = dict(
        re.findall(r"`(vendor/[^`]+)`.*`([0-9a-f]{64})`", (FOLDER / "VENDORED.md").read_text())
    )
    found = {
        path: hashlib.sha256(data).hexdigest()
        for path, data in page_files().items()
        if path.startswith("vendor/")
    }
    assert found
    assert found == noted


def test_the_page_is_small_as_sent(anybody: httpx.Client) -> None:
    with anybody as http:
        version = linked(http.get("/").text)[0].split("/")[1]
        sizes = {
            path: int(http.get(f"/web/{version}/{path}").headers["content-length"])
            for path in page_files()
            if path not in PAGES.values()
        }
    assert sum(sizes.values()) <= LARGEST_KB * 1000, sizes


@pytest.mark.parametrize(("path", "num_files"), [("/", 4), ("/docs", 2)])
def test_anybody_gets_a_page_and_its_files_with_every_guard(
    anybody: httpx.Client, path: str, num_files: int
) -> None:
    with anybody as http:
        page = http.get(path)
        assert page.status_code == 200
        assert TOKEN not in page.text
        files = [http.get(f"/{name}") for name in linked(page.text)]
    assert len(files) == num_files
    for answer in (page, *files):
        assert answer.status_code == 200
        assert answer.headers.items() >= {k.lower(): v for k, v in HEADERS.items()}.items()
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    kinds = {answer.headers["content-type"].split(";")[0] for answer in files}
    assert kinds == {"text/css", "text/javascript"}


def test_files_are_kept_for_good_and_the_page_is_asked_about(anybody: httpx.Client) -> None:
    with anybody as http:
        page = http.get("/")
        assert page.headers["cache-control"] == "no-cache"
        again = http.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        file = http.get(f"/{linked(page.text)[0]}")
        assert "immutable" in file.headers["cache-control"]
        plain = http.get(f"/{linked(page.text)[0]}", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == file.content


@pytest.mark.parametrize(
    "path", ["/web/", "/web/x/app.js", "/web/{v}/serving.py", "/web/{v}/../app.py", "/web/{v}/"]
)
def test_nothing_else_is_served(anybody: httpx.Client, path: str) -> None:
    with anybody as http:
        version = linked(http.get("/").text)[0].split("/")[1]
        answer = http.get(path.replace("{v}", version))
    assert answer.status_code in (401, 404)
    assert "import" not in answer.text


def test_no_file_of_the_page_builds_markup_or_code_out_of_text() -> None:
    for path, data in page_files().items():
        if not path.startswith("vendor/"):
            text = data.decode()
            assert not re.search(
                r"innerHTML|dangerouslySet|eval\(|new Function|document\.write", text
            )
            assert not re.search(r"https?://(?!www\.w3\.org)", text), path
