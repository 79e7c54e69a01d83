"""The transport of production and a raw server, over plain connections or over TLS with a certificate of the test's own."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from forwarder.pms.http.client import Held, Request, Transport
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import Response
from tests.support.network.raw_server import RawServer, Script, raw_server

SCHEMES: Final = ("http", "https")
CREATED: Final = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"


class Way:
    """How the transport and its servers speak: `http` or `https`."""

    def __init__(self, scheme: str, directory: Path) -> None:
        self.serving: ssl.SSLContext | None = None
        self.trusted: ssl.SSLContext | None = None
        if scheme == "https":
            self.serving, self.trusted = contexts(directory, "IP:127.0.0.1")

    def server(self, script: Script) -> AbstractAsyncContextManager[RawServer]:
        return raw_server(script, tls=self.serving)

    def transport(self, **limits: Any) -> ConnectionPool:
        return ConnectionPool(PoolLimits(**{"connect_seconds": 10.0} | limits), self.trusted)


def contexts(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server of that name, and for whoever believes its certificate, which only itself vouches for."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=pms.example"),
            *("-addext", f"subjectAltName={name}"),
        ],
        check=True,
        capture_output=True,
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    return serving, ssl.create_default_context(cafile=str(certificate))


async def ask(
    transport: Transport,
    url: str,
    *,
    method: str = "POST",
    seconds: float = 5.0,
    content: bytes = b'{"a":1}',
    headers: Sequence[tuple[bytes, bytes]] = ((b"X-Name", b"value"),),
    held: Held | None = None,
) -> Response:
    """The response to a request that may take so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    return await transport.exchange(Request(method, url, headers, content), deadline, held)
