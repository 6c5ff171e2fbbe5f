"""The link that signs in: the token in the fragment, which no server sees, and in no log."""

from urllib.parse import urlsplit

from nitro.dashboard.page_link import page_link, shown_link
from nitro.hints import Place


def test_the_token_is_in_the_fragment_alone() -> None:
    parts = urlsplit(page_link("https://host/", "a+b/c=", job_id="hopper-v5-3f2a"))
    assert (parts.scheme, parts.netloc, parts.path, parts.query) == ("https", "host", "/", "")
    assert parts.fragment == "token=a%2Bb%2Fc%3D&to=/jobs/hopper-v5-3f2a"


def test_only_a_terminal_is_told_the_token() -> None:
    place = Place(api_url="https://host")
    assert "secret" in shown_link("https://host", "secret", private=True, place=place)
    told = shown_link("https://host", "secret", private=False, place=place, job_id="a-1")
    assert "secret" not in told
    assert "nitro dashboard a-1 --api-url https://host" in told
