"""What one callback writes leaves in one piece, in order, and nothing is lost by closing."""

import asyncio
from collections.abc import Callable

import pytest

from services.emulator.joined_writes import JoiningTransport


class Recorder(asyncio.Transport):
    """Notes what happens to a connection."""

    def __init__(self) -> None:
        super().__init__(extra={"peername": ("127.0.0.1", 4)})
        self.seen: list[object] = []

    def write(self, data: object) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("close")

    def abort(self) -> None:
        self.seen.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.seen

    def pause_reading(self) -> None:
        self.seen.append("pause")

    def resume_reading(self) -> None:
        self.seen.append("resume")


def seen_after(act: Callable[[JoiningTransport], object]) -> list[object]:
    """Return what a connection saw of an act and of one turn of the event loop after it."""
    recorder = Recorder()

    async def run() -> None:
        act(JoiningTransport(recorder, asyncio.get_running_loop()))
        recorder.seen.append("turn")
        await asyncio.sleep(0)

    asyncio.run(run())
    return recorder.seen


def test_what_one_callback_writes_leaves_in_one_piece() -> None:
    def write_two(transport: JoiningTransport) -> None:
        transport.write(b"head")
        transport.write(bytearray(b"body"))

    assert seen_after(write_two) == ["turn", b"headbody"]


def test_what_the_next_callback_writes_follows_by_itself() -> None:
    recorder = Recorder()

    async def run() -> None:
        transport = JoiningTransport(recorder, asyncio.get_running_loop())
        for piece in (b"first", b"second"):
            transport.write(piece)
            await asyncio.sleep(0)

    asyncio.run(run())
    assert recorder.seen == [b"first", b"second"]


def test_closing_sends_what_is_held() -> None:
    def write_and_close(transport: JoiningTransport) -> None:
        transport.write(b"all")
        transport.close()
        assert transport.is_closing()

    assert seen_after(write_and_close) == [b"all", "close", "turn"]


def test_aborting_sends_nothing() -> None:
    def write_and_abort(transport: JoiningTransport) -> None:
        transport.write(b"all")
        transport.abort()

    assert seen_after(write_and_abort) == ["abort", "turn"]


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_reading_is_the_connections_own(name: str) -> None:
    seen = seen_after(lambda transport: getattr(transport, f"{name}_reading")())
    assert seen == [name, "turn"]


def test_who_is_at_the_other_end_is_known() -> None:
    recorder = Recorder()
    loop = asyncio.new_event_loop()
    loop.close()
    transport = JoiningTransport(recorder, loop)
    assert transport.get_extra_info("peername") == ("127.0.0.1", 4)
    assert transport.get_extra_info("cipher", "none") == "none"
    assert not transport.is_closing()
