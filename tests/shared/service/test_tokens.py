from pathlib import Path

import pytest
from pydantic import SecretStr

from shared.service.tokens import TokenError, read_token


def test_the_variable_wins_over_the_file_and_white_space_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_token(None, None) is None
    assert read_token(None, file) == "from-file"
    assert read_token(SecretStr(" direct\n"), file) == "direct"


@pytest.mark.parametrize("text", ["", "  \n", "two words", "caf\u00e9", "a\x07b"])
def test_what_no_header_can_carry_is_refused_by_its_source_and_never_quoted(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(TokenError, match="NITRO_TOKEN") as direct:
        read_token(SecretStr(text), None)
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(TokenError, match=f"NITRO_TOKEN_FILE.*{file}") as from_file:
        read_token(None, file)
    if text.strip():
        assert text not in str(direct.value) + str(from_file.value)


def test_a_file_that_cannot_be_read_or_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match=f"cannot read the token file {tmp_path}"):
        read_token(None, tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TokenError, match="is no text"):
        read_token(None, binary)
