"""What clients that ask much and read nothing cost a scaler process."""

import pytest

from tests.security.flood import flood, main

PATIENCE_S = 5.0
"""For `/healthz`, which takes a tenth of a second: tests beside this one may take the machine."""
HOLD_S = 2.0
"""Most of it is silence: all that is sent is sent in a tenth of it."""


@pytest.mark.parametrize(
    ("who", "hold_s"),
    # The second of the visitors ends the process while it still makes their answers.
    [("strangers", HOLD_S), ("visitors", HOLD_S), ("visitors", 0.1), ("crumbs", HOLD_S)],
)
def test_who_has_no_token_cannot_fill_memory_nor_silence_the_scaler(
    who: str, hold_s: float
) -> None:
    outcome = flood(who, connections=20, kib=256, hold_s=hold_s)
    assert outcome.memory_added_mb <= 50
    assert outcome.worst_healthz_s <= PATIENCE_S
    assert outcome.tracebacks == 0
    assert outcome.log_lines <= 20 + 10, "a line each, and those of the end"


def test_a_token_holder_who_never_reads_costs_a_line_at_most() -> None:
    outcome = flood("holders", connections=40, kib=64, hold_s=HOLD_S)
    assert outcome.tracebacks == 0
    assert outcome.log_lines <= 40 + 10
    assert outcome.worst_healthz_s <= PATIENCE_S


def test_the_command_refuses_a_flood_without_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--holders", "1000000"])
    assert "above" in capsys.readouterr().err
