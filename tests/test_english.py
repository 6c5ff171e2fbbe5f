"""Documents and help are written in short sentences."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site_pages import reference_pages
from tests.documents import DOCUMENTS, ROOT

MOST_WORDS = 30
GENERATED = {name: text for name, text in reference_pages().items() if name.endswith(".md")}
_CODE = re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=[|#>])|(?<!\\)\|")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[^\s]*\w[^\s]*")


def sentences(text: str) -> Iterator[str]:
    """Return the sentences of a Markdown text; a piece of code is one word."""
    for block in _BLOCK.split(_LINK.sub(r"\1", _CODE.sub("\n\n", text))):
        plain = re.sub(r"`[^`]+`", "code", " ".join(block.split()))
        yield from re.split(r"(?<=[.!?])[)*\"']*\s+", plain)


def long_sentences(text: str) -> list[str]:
    return [text for text in sentences(text) if len(_WORD.findall(text)) > MOST_WORDS]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_of_a_document_is_long(page: Path) -> None:
    assert not long_sentences(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", GENERATED)
def test_no_sentence_of_help_or_of_a_field_is_long(name: str) -> None:
    assert not long_sentences(GENERATED[name])


def test_long_sentences_are_found_wherever_they_stand() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    for text in (long, f"- {long}", f"| a | {long} |", f"One. {long}. Two.", f"[{long}](a.md)"):
        assert len(long_sentences(text)) == 1, text
    short = " ".join(["word"] * MOST_WORDS)
    for text in (short, f"```\n{long}\n```", f"{short}. {short}.", f"| {short} | {short} |"):
        assert not long_sentences(text), text
