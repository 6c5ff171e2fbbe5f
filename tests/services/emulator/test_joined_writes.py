"""Head and body of a response leave in one piece, and nothing is lost or out of order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from services.emulator.joined_writes import MOST_HELD_BYTES, JoinedWrites, JoiningTransport

_REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


class Recorded(asyncio.Transport):
    """Keeps what it is told; what is written after its end is lost, as it would be."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 80)})
        self.told: list[bytes | str] = []

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if not self.is_closing():
            self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.told


def _told(acts: Callable[[JoiningTransport], None]) -> list[bytes | str]:
    async def run() -> list[bytes | str]:
        recorded = Recorded()
        acts(JoiningTransport(recorded, asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return recorded.told

    return asyncio.run(run())


def test_what_is_written_in_one_turn_is_sent_as_one() -> None:
    def acts(transport: JoiningTransport) -> None:
        for part in (b"head ", bytearray(b"and "), memoryview(b"body")):
            transport.write(part)

    assert _told(acts) == [b"head and body"]


def test_what_is_written_later_is_sent_later() -> None:
    async def run() -> list[bytes | str]:
        recorded = Recorded()
        transport = JoiningTransport(recorded, asyncio.get_running_loop())
        for part in (b"one", b"two"):
            transport.write(part)
            await asyncio.sleep(0)
        return recorded.told

    assert asyncio.run(run()) == [b"one", b"two"]


def test_much_is_sent_at_once() -> None:
    async def run() -> tuple[int, list[bytes | str]]:
        recorded = Recorded()
        transport = JoiningTransport(recorded, asyncio.get_running_loop())
        transport.write(b"head")
        transport.write(bytes(MOST_HELD_BYTES))
        sent = len(recorded.told)
        transport.write(b"more")
        await asyncio.sleep(0)
        return sent, recorded.told

    sent, told = asyncio.run(run())
    assert sent == 1
    assert told == [b"head" + bytes(MOST_HELD_BYTES), b"more"]


def test_closing_sends_what_is_held_first() -> None:
    def acts(transport: JoiningTransport) -> None:
        transport.write(b"head ")
        transport.write(b"body")
        transport.close()

    assert _told(acts) == [b"head body", "close"]


def test_aborting_sends_nothing_more() -> None:
    def acts(transport: JoiningTransport) -> None:
        transport.write(b"head")
        transport.abort()

    assert _told(acts) == ["abort"]


def _answered(then: Callable[[JoinedWrites, Recorded], None]) -> list[bytes | str]:
    """Have uvicorn answer a request; `then` runs in the turn in which it has written."""

    async def run() -> list[bytes | str]:
        recorded, loop = Recorded(), asyncio.get_running_loop()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await PlainTextResponse("the body")(scope, receive, send)
            then(protocol, recorded)

        protocol = JoinedWrites(uvicorn.Config(app), ServerState(), {}, loop)
        protocol.connection_made(recorded)
        protocol.data_received(_REQUEST)
        (task,) = protocol.tasks
        await task
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        return recorded.told

    return asyncio.run(run())


def test_a_response_leaves_in_one_piece() -> None:
    response, closed = _answered(lambda protocol, recorded: None)
    assert isinstance(response, bytes)
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert response.endswith(b"\r\n\r\nthe body")
    assert closed == "close"


def test_a_client_that_has_said_all_it_will_still_gets_its_response() -> None:
    def half_close(protocol: JoinedWrites, recorded: Recorded) -> None:
        protocol.eof_received()
        recorded.close()  # as an event loop's transport does next

    response, *_ = _answered(half_close)
    assert isinstance(response, bytes)
    assert response.endswith(b"the body")


def test_nothing_is_sent_on_a_connection_that_broke() -> None:
    told = _answered(lambda protocol, _: protocol.connection_lost(ConnectionResetError()))
    assert not any(isinstance(one, bytes) for one in told)


@pytest.mark.parametrize("name", ["peername", "sslcontext"])
def test_what_is_asked_about_the_connection_is_answered(name: str) -> None:
    async def run() -> object:
        transport = JoiningTransport(Recorded(), asyncio.get_running_loop())
        return transport.get_extra_info(name)

    assert asyncio.run(run()) == {"peername": ("192.0.2.1", 80)}.get(name)
