import io

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.records.result import Result, Row, Series, Target
from benchmarks.records.table import cells, result_table

OURS = Series(name="actor", unit="steps/s", better="higher", samples=(12_345.6,))
PEER = Series(name="SB3", unit="steps/s", better="higher", samples=(4_000.0,))


def test_cells_of_a_missed_target() -> None:
    target = Target(of="ratio", bound="at_least", value=4.0)
    row = Row(what="Hopper", ours=OURS, peer=PEER, target=target)
    assert cells(row) == (
        "Hopper",
        "actor: 12,346 steps/s",
        "SB3: 4,000 steps/s",
        "3.09 / 3.09 / 3.09",
        "≥ 4x",
        "NO",
    )


def test_cells_without_peer_have_our_unit_in_the_target() -> None:
    late = Series(name="answer", unit="ms", better="lower", samples=(2.5,), statistic="p99")
    row = Row(what="call", ours=late, target=Target(of="ours", bound="at_most", value=10.0))
    assert cells(row) == ("call", "answer: p99 2.5 ms", "-", "-", "≤ 10 ms", "yes")


def test_cells_without_target() -> None:
    assert cells(Row(what="w", ours=OURS))[-2:] == ("-", "-")


def test_table_has_a_line_per_row_under_its_title() -> None:
    rows = (Row(what="first", ours=OURS), Row(what="second", ours=OURS, peer=PEER))
    result = Result(
        name="demo", title="Demo", command="c", environment=describe_environment(), rows=rows
    )
    out = io.StringIO()
    Console(file=out, width=140).print(result_table(result))
    text = out.getvalue()
    assert text.startswith("Demo")
    assert "first" in text
    assert "second" in text
