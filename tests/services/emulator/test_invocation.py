"""What Lambda logs about an invocation."""

import pytest

from services.emulator.invocation import Invocation, Outcome, log_tail


def invocation() -> Invocation:
    return Invocation(request_id="id", payload=b"", arn="", version="1", trace_id="")


@pytest.mark.parametrize(
    ("duration_s", "init_s", "fields"),
    [
        (0.0101, None, ["Duration: 10.10 ms", "Billed Duration: 11 ms"]),
        (0.010, None, ["Duration: 10.00 ms", "Billed Duration: 10 ms"]),
        (0.0101, 0.2505, ["Duration: 10.10 ms", "Billed Duration: 261 ms"]),
    ],
)
def test_initialisation_is_billed_and_whole_milliseconds_too(
    duration_s: float, init_s: float | None, fields: list[str]
) -> None:
    ended, outcome = invocation(), Outcome(payload=b"")
    ended.init_s = init_s
    tail = log_tail(ended, outcome, duration_s=duration_s, memory_mb=512, max_memory_mb=77)
    report = tail.decode().splitlines()[-1]
    init = [] if init_s is None else ["Init Duration: 250.50 ms"]
    memory = ["Memory Size: 512 MB", "Max Memory Used: 77 MB"]
    assert report.rstrip().split("\t") == ["REPORT RequestId: id", *fields, *memory, *init]


def test_the_tail_keeps_the_report_whatever_was_written() -> None:
    ended, outcome = invocation(), Outcome(payload=b"")
    ended.wrote(b"a" * 10_000)
    ended.wrote(b"the end")
    tail = log_tail(ended, outcome, duration_s=0.001, memory_mb=128, max_memory_mb=20)
    assert len(tail) == 4096
    assert b"the end\nEND RequestId: id\nREPORT RequestId: id\t" in tail
