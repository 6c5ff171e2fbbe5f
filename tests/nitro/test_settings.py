from pathlib import Path

import pytest
from pydantic import SecretStr

from nitro.errors import CommandError
from nitro.settings import CliSettings, api_address, api_token

LOCAL = "http://127.0.0.1:8470"
REMOTE = "https://nitro.example.com"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / ".nitro"
    folder.mkdir()
    (folder / "token").write_text("local-token\n")
    (folder / "api_url").write_text(LOCAL)
    return tmp_path


def settings(**fields: object) -> CliSettings:
    return CliSettings.model_validate(fields)


def test_the_option_wins_over_the_variable_and_that_over_the_local_system(runs: Path) -> None:
    variable = settings(api_url="http://variable/")
    assert api_address("http://option", variable, runs) == "http://option"
    assert api_address(None, variable, runs) == "http://variable"
    assert api_address(None, settings(), runs) == LOCAL


def test_variables_are_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_API_URL", REMOTE)
    monkeypatch.setenv("NITRO_TOKEN", "secret")
    assert api_address(None, CliSettings(), runs) == REMOTE
    assert api_token(REMOTE, CliSettings(), runs) == "secret"
    assert "secret" not in repr(CliSettings())


def test_without_any_address_the_ways_to_get_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nitro up.*--api-url, NITRO_API_URL or `nitro l"):
        api_address(None, settings(), tmp_path)


def test_an_address_without_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--api-url: must start with http"):
        api_address("127.0.0.1:8080", settings(), tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://[::1",
        "http://host:99999",
        "http://a b",
        "http://host:port",
        "http://a\0",
        "http://a..b",
        "http://xn--\u2603.com",
        "http://\u2603.net",
        "http://xn--a",
        f"http://{'a' * 64}.com",
    ],
)
def test_an_address_that_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CommandError, match="--api-url: must read https://host"):
        api_address(url, settings(), tmp_path)


@pytest.mark.parametrize(
    "url", ["https://host/#token=secret", "https://host/?token=secret", "https://a:secret@host"]
)
def test_an_address_with_a_secret_in_it_is_refused_and_not_repeated(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(CommandError, match="--api-url: give the address alone") as refused:
        api_address(url, settings(), tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("token", ["one word\nx", "s\u00e9cret", "two words", "nul\0", "\n"])
def test_a_token_no_header_can_carry_is_refused_and_not_repeated(
    tmp_path: Path, token: str
) -> None:
    file = tmp_path / "mine"
    file.write_text(token, encoding="utf-8")
    for given in (settings(token=SecretStr(token)), settings(token_file=file)):
        with pytest.raises(CommandError, match=r"NITRO_TOKEN|token file") as caught:
            api_token(REMOTE, given, tmp_path)
        assert not token.strip() or token.strip() not in str(caught.value)


def test_a_line_end_after_the_token_does_no_harm(tmp_path: Path) -> None:
    assert api_token(REMOTE, settings(token=SecretStr("token\n")), tmp_path) == "token"


def test_a_token_file_that_is_no_text_is_named_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_bytes(b"secret\xff")
    with pytest.raises(CommandError, match=f"the token file {file} is no text") as caught:
        api_token(REMOTE, settings(token_file=file), tmp_path)
    assert "secret" not in str(caught.value)


def test_the_token_wins_over_its_file_and_that_over_the_local_one(
    runs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine"
    file.write_text("file-token\n")
    both = settings(token=SecretStr("token"), token_file=file)
    assert api_token(LOCAL, both, runs) == "token"
    assert api_token(LOCAL, settings(token_file=file), runs) == "file-token"
    assert api_token(LOCAL, settings(), runs) == "local-token"


@pytest.mark.parametrize("url", [REMOTE, "http://10.0.0.1:80", "http://127.0.0.1.evil.example"])
def test_the_local_token_never_leaves_this_machine(runs: Path, url: str) -> None:
    with pytest.raises(CommandError, match="set NITRO_TOKEN or NITRO_TOKEN_FILE"):
        api_token(url, settings(), runs)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "http://127.0.0.9"])
def test_every_name_of_this_machine_gets_the_local_token(runs: Path, url: str) -> None:
    assert api_token(url, settings(), runs) == "local-token"


def test_a_missing_or_empty_token_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    with pytest.raises(CommandError, match=f"cannot read the token file {file}"):
        api_token(REMOTE, settings(token_file=file), tmp_path)
    file.touch()
    with pytest.raises(CommandError, match=f"the token file {file} is empty"):
        api_token(REMOTE, settings(token_file=file), tmp_path)
