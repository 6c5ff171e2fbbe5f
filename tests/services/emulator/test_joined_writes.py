"""What one callback writes leaves in one piece, in order, and nothing is lost by closing."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from services.emulator.joined_writes import JoiningProtocol, JoiningTransport


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


def test_what_is_written_after_the_connection_began_to_close_is_dropped() -> None:
    def lose_and_write(transport: JoiningTransport) -> None:
        transport.write(b"head")
        transport.close()
        transport.write(b"late")

    assert seen_after(lose_and_write) == [b"head", "close", "turn"]


def test_much_leaves_at_once() -> None:
    body, rest = b"x" * HIGH_WATER_LIMIT, b"rest"

    def write_much(transport: JoiningTransport) -> None:
        for piece in (b"head", body, rest):
            transport.write(piece)

    assert seen_after(write_much) == [b"head" + body, "turn", rest]


def test_what_is_not_much_waits_after_much() -> None:
    much, rest = b"x" * (HIGH_WATER_LIMIT + 1), b"x" * HIGH_WATER_LIMIT

    def write_both(transport: JoiningTransport) -> None:
        transport.write(much)
        transport.write(rest)

    assert seen_after(write_both) == [much, "turn", rest]


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


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[socket.socket]:
    """Serve an application; yields a client that has asked for something, and reads nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=JoiningProtocol, ws="none", lifespan="off", access_log=False, log_config=None
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    serving = asyncio.create_task(server.serve([listener]))
    try:
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            yield client
    finally:
        server.should_exit = True
        await serving


async def answer(send: Any, pieces: Iterable[bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


def test_an_application_pauses_while_nobody_reads() -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for index in range(64):
            made.append(index)
            yield bytes(1 << 20)

    async def run() -> None:
        begun = asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            begun.set()
            await answer(send, pieces())

        async with served(app):
            await begun.wait()
            await asyncio.sleep(0.0)
            assert 0 < len(made) < 64

    uvloop.run(run())


@pytest.mark.parametrize("first", ["answer", "reset"])
def test_a_client_that_resets_the_connection_as_it_is_answered_is_no_error(first: str) -> None:
    errors: list[dict[str, Any]] = []

    async def run() -> None:
        loop, asked, go = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        loop.set_exception_handler(lambda _loop, context: errors.append(context))

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            asked.set()
            await go.wait()
            await answer(send, [b"late"])

        woken, waker = socket.socketpair()
        with woken, waker:
            async with served(app) as client:
                await asked.wait()
                loop.add_reader(woken, go.set)
                await asyncio.sleep(0.01)  # until the loop looks at it
                # One turn of the loop hears of both, in this order.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                acts = [lambda: waker.send(b"!"), client.close]
                for act in acts if first == "answer" else reversed(acts):
                    act()
                await go.wait()
                loop.remove_reader(woken)
                await asyncio.sleep(0.01)

    uvloop.run(run())
    assert not errors
