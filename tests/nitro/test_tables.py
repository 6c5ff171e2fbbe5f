"""Text and tables for people."""

from io import StringIO

import pytest
from rich.console import Console

from nitro.tables import columns_table, facts_table, plain

EVIL = ["\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "a\rb", "a\nb", "a\x08b", "a\u202eb"]


@pytest.mark.parametrize("text", EVIL)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)
    console = Console(file=StringIO(), width=80)
    console.print(facts_table([("name", text)]))
    console.print(columns_table({"text": [text]}, numbers=(), uncut=1, width=80))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(line.isprintable() for line in said.splitlines())
    assert "\x1b" not in said


def test_what_people_write_stays() -> None:
    assert plain("step\t12 – 3 °C, naïve, 東京") == "step\t12 – 3 °C, naïve, 東京"
