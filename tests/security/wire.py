"""HTTP by hand: requests no client library would send."""

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Answer:
    """What came back before the connection was closed, or fell silent."""

    status: int | None
    """None when the server only hung up."""
    text: str


def send(url: str, *parts: bytes) -> Answer:
    """Send these bytes and read the answer; what the server will not take is no error."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.create_connection((host or "", port or 0), timeout=_PATIENCE_S) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
                if _complete(received):
                    break
        except ConnectionResetError:
            pass
    line = received.split(b"\r\n", 1)[0].split(b" ")
    status = int(line[1]) if len(line) > 1 and line[1].isdigit() else None
    return Answer(status, received.decode("utf-8", "replace"))


def request(
    method: str, target: str, *headers: str, token: str | None = None, body: bytes = b""
) -> bytes:
    """Return a request's bytes; the target goes out as it is."""
    lines = [f"{method} {target} HTTP/1.1", "Host: scaler", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _complete(received: bytes) -> bool:
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False
