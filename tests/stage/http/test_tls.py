"""Inbound TLS: who is let in, what a handshake may use, and a certificate that is renewed while requests are under way."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from forwarder.http.connections import ConnectionLimits, ServerTls, TlsFiles
from forwarder.http.messages import Response
from forwarder.http.server import serve
from forwarder.observability.metrics import CONNECTIONS_ENDED
from forwarder.process.supervision import Stop, bind
from tests.support.backends import missing
from tools.servers.certificates import Authority, Certificate
from tools.servers.ladder import Unavailable

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ROOMY = ConnectionLimits()
SHORT = ConnectionLimits(head_seconds=0.3)


def on_both_loops(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """uvloop's, which the processes run on, and asyncio's: each has a TLS of its own."""

    @pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
    def running(run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path) -> None:
        run(test(tmp_path))

    return cast("Callable[..., None]", running)


@dataclass(frozen=True, slots=True)
class Site:
    authority: Authority
    files: TlsFiles
    tls: ServerTls
    port: int
    begun: asyncio.Event
    go_on: asyncio.Event

    def client(self, own: Certificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.file)
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context

    async def connect(self, context: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("localhost", self.port, ssl=context)

    async def asked(self, context: ssl.SSLContext) -> tuple[bytes, str]:
        """What is answered to a GET, and whom the server's certificate names."""
        reader, writer = await self.connect(context)
        try:
            writer.write(GET)
            return await said(reader), subject(writer)
        finally:
            writer.close()

    def put(self, certificate: Certificate) -> None:
        """As who renews certificates does: the files are replaced."""
        for new, old in ((certificate.certificate, self.files.certificate), (certificate.key, self.files.key)):
            shutil.copy(new, f"{old}.new")
            Path(f"{old}.new").replace(old)


async def said(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


def subject(writer: asyncio.StreamWriter) -> str:
    return str(dict(pair for (pair,) in writer.get_extra_info("peercert")["subject"])["commonName"])


@asynccontextmanager
async def serving(directory: Path, *, clients: bool = False, limits: ConnectionLimits = ROOMY) -> AsyncIterator[Site]:
    try:
        authority = Authority(directory / "certificates")
    except Unavailable as reason:
        missing(reason)
    first = authority.issue("first", "DNS:localhost")
    files = TlsFiles(first.certificate, first.key, authority.file if clients else None)
    tls, listening, stop = ServerTls(files), bind("127.0.0.1", 0), Stop()
    site = Site(authority, files, tls, listening.getsockname()[1], asyncio.Event(), asyncio.Event())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        site.begun.set()
        if scope["path"] == "/held":
            await site.go_on.wait()
        await Response(200, scope["scheme"].encode())(scope, receive, send)

    task = asyncio.create_task(serve(app, listening, stop, grace_seconds=1, limits=limits, tls=tls))
    try:
        async with asyncio.timeout(60):
            yield site
    finally:
        site.go_on.set()
        stop.set()
        await task


def ended(reason: str) -> float:
    (metric,) = CONNECTIONS_ENDED.labels(reason).collect()
    return next(sample.value for sample in metric.samples if sample.name.endswith("_total"))


@on_both_loops
async def test_https_is_served_with_the_given_certificate(tmp_path: Path) -> None:
    async with serving(tmp_path) as site:
        assert await site.asked(site.client()) == (b"https", "first")
        with pytest.raises(ssl.SSLCertVerificationError):
            await site.asked(ssl.create_default_context())


@on_both_loops
async def test_what_is_older_than_tls_1_2_or_no_tls_at_all_is_let_in_nowhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as site:
        before, old = ended("tls"), site.client()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.asked(old)
        reader, writer = await site.connect(None)
        writer.write(GET)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await said(reader)
        writer.close()
        assert ended("tls") == before + 2
        assert await site.asked(site.client()) == (b"https", "first")


@on_both_loops
async def test_clients_are_known_by_a_certificate_where_that_is_wanted(tmp_path: Path) -> None:
    async with serving(tmp_path, clients=True) as site:
        assert await site.asked(site.client(site.authority.issue("client"))) == (b"https", "first")
        site.begun.clear()
        stranger = Authority(tmp_path / "other").issue("client")
        for context in (site.client(), site.client(stranger)):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await site.asked(context)
        assert not site.begun.is_set()


@on_both_loops
async def test_who_connects_and_begins_no_handshake_keeps_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=ConnectionLimits(max_connections=20)) as site:
        before = ended("evicted")
        silent = [await site.connect(None) for _ in range(60)]
        assert await site.asked(site.client()) == (b"https", "first")
        assert ended("evicted") == before + 41
        for _, writer in silent:
            writer.close()


@on_both_loops
async def test_a_handshake_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=SHORT) as site:
        before = ended("tls")
        reader, writer = await site.connect(None)
        writer.write(b"\x16\x03\x01")
        assert await reader.read() == b""
        assert ended("tls") == before + 1
        writer.close()


@on_both_loops
async def test_a_renewed_certificate_is_taken_up_and_no_request_is_lost(tmp_path: Path) -> None:
    async with serving(tmp_path) as site:
        reader, writer = await site.connect(site.client())
        writer.write(GET.replace(b"/ ", b"/held "))
        await site.begun.wait()
        site.put(site.authority.issue("second", "DNS:localhost"))
        site.tls.renew()
        assert await site.asked(site.client()) == (b"https", "second")
        site.go_on.set()
        assert (await said(reader), subject(writer)) == (b"https", "first")
        writer.close()


@on_both_loops
async def test_half_a_renewal_leaves_the_certificate_in_force(tmp_path: Path) -> None:
    async with serving(tmp_path) as site:
        renewed = site.authority.issue("second", "DNS:localhost")
        shutil.copy(renewed.certificate, site.files.certificate)
        site.tls.renew()
        assert await site.asked(site.client()) == (b"https", "first")
        shutil.copy(renewed.key, site.files.key)
        site.tls.renew()
        assert await site.asked(site.client()) == (b"https", "second")
