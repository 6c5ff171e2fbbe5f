"""The project's documents, and the commands that they show."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_BLOCK = re.compile(
    r"(?:<!-- (?P<marker>(?:needs|takes) \w+) -->\n *)?```(?:sh|bash)\n(?P<code>.*?)```", re.DOTALL
)
_INLINE = re.compile(r"(?<!`)`((?:nitro|make|python -m) [^`]+)`")
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Command:
    """One command as it is typed."""

    page: Path
    words: tuple[str, ...]
    marker: str
    """Such as `needs AWS`; empty if anybody can run it."""
    whole: bool
    """Whether it stands in a block of code; one in a sentence may lack its arguments."""


def commands(page: Path) -> Iterator[Command]:
    """Return the commands of a document, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        for line in block["code"].replace("\\\n", " ").splitlines():
            yield from _of_line(page, line, marker=block["marker"] or "", whole=True)
    for inline in _INLINE.findall(_BLOCK.sub("", text)):
        yield from _of_line(page, " ".join(inline.split()), marker="", whole=False)


def _of_line(page: Path, line: str, *, marker: str, whole: bool) -> Iterator[Command]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("&|;<>"):
            words.append(word)
            continue
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words[:2] == ["make", "train"]:
            options = " ".join(
                word.removeprefix("ARGS=") for word in words[2:] if word.startswith("ARGS=")
            )
            words = ["nitro", "train", *shlex.split(options)]
        if words:
            yield Command(page=page, words=tuple(words), marker=marker, whole=whole)
        words = []


def show(command: Command) -> str:
    """Name a command in a test's id."""
    return f"{command.page.relative_to(ROOT)}: {' '.join(command.words)[:80]}"
