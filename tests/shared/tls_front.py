"""TLS in front of a server that has none, with a certificate of our own, as ElastiCache has it."""

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class TlsFront:
    """A listener that decrypts and passes on."""

    port: int
    certificate: Path
    """The certificate, which is its own authority."""


@contextmanager
def tls_front(
    folder: Path, *, host: str, port: int, address: str = "127.0.0.1", listen_port: int = 0
) -> Iterator[TlsFront]:
    """Listen with TLS on an address of this machine before the server at `host` and `port`."""
    certificate = _certificate(folder, address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "key.pem")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
        finally:  # also where the front ends before the connection does
            for each in (server_writer, writer):
                each.transport.abort()
                with suppress(OSError, ssl.SSLError):
                    await each.wait_closed()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(relay, address, listen_port, ssl=context)

    async def stop() -> None:
        server.close()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield TlsFront(port=server.sockets[0].getsockname()[1], certificate=certificate)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _certificate(folder: Path, address: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cache")])
    subject = x509.IPAddress(ipaddress.ip_address(address))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([subject]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path = folder / "certificate.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path
