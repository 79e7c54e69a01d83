"""What an account has of its own for TLS: a private authority, a client certificate; and cards, which no plain http carries."""

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import pytest
import uvloop

from forwarder.pms.directory import open_directory
from forwarder.pms.port import SYSTEM_TLS, AccountConnection, BadOptions, ClientTls, PmsDirectory
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Confirmed, Deferred, Outcome
from forwarder.settings.environment import Environment
from tests.support.backends import missing
from tests.support.network.raw_server import Caller, raw_server
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import CARD, QuickClock, booking
from tools.servers.certificates import Authority, Certificate
from tools.servers.ladder import Unavailable

HERE = "IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    try:
        return Authority(tmp_path_factory.mktemp("certificates"))
    except Unavailable as reason:
        missing(reason)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strangers"))


@dataclass
class TlsPms:
    """A PMS with a certificate. `asked`: by whom it was, as their certificate names them."""

    asked: list[str] = field(default_factory=list)
    connections: int = 0

    async def __call__(self, caller: Caller) -> None:
        self.connections += 1
        while True:
            reference = json.loads((await caller.request()).partition(b"\r\n\r\n")[2])["reference"]
            shown = caller.writer.get_extra_info("peercert")
            self.asked.append(str(dict(pair for (pair,) in shown["subject"])["commonName"]) if shown else "")
            body = json.dumps({"id": "1", "reference": reference}).encode()
            await caller.say(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def serving(own: Certificate, clients: Authority | None = None, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    if clients is not None:
        context.load_verify_locations(clients.file)
        context.verify_mode = ssl.CERT_REQUIRED
    if newest is not None:
        context.maximum_version = newest
    return context


def trusting(authority: Authority, own: Certificate | None = None) -> ClientTls:
    if own is None:
        return ClientTls(authority.file.read_text())
    return ClientTls(authority.file.read_text(), own.certificate.read_text(), own.key.read_text())


class StrictPms:
    """One that takes the handshake by OpenSSL itself, whose alerts reach its clients: asyncio's servers close without a word.
    `asked`: how many requests reached it."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                peer.settimeout(10)
                with self._tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False) as secured:
                    self._answer(secured)

    def _answer(self, secured: ssl.SSLSocket) -> None:
        try:
            secured.do_handshake()
        except ssl.SSLError:
            secured.setblocking(True)
            while os.read(secured.fileno(), 65536):
                pass  # to close before would reset the connection, and the alert with it
            return
        request = b""
        while b"\r\n\r\n" not in request or not request.endswith(b"}"):
            request += secured.recv(65536)
        self.asked += 1
        reference = json.loads(request.partition(b"\r\n\r\n")[2])["reference"]
        body = json.dumps({"id": "1", "reference": reference}).encode()
        secured.sendall(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


@asynccontextmanager
async def reached(pms: TlsPms, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[PmsDirectory, str]]:
    async with raw_server(pms, tls=tls) as server, open_directory(QuickClock()) as directory:
        yield directory, server.url


async def pushed(directory: PmsDirectory, url: str, tls: ClientTls, number: int = 1, account: str = "a") -> Outcome:
    return await directory.connect(AccountConnection(account, "generic", url, "secret", tls=tls)).create(
        booking(number)
    )


async def test_a_private_authority_is_believed_by_the_account_that_has_it_alone(authority: Authority) -> None:
    pms = TlsPms()
    async with reached(pms, serving(authority.issue("pms", HERE))) as (directory, url):
        assert isinstance(await pushed(directory, url, trusting(authority)), Confirmed)
        outcome = await pushed(directory, url, SYSTEM_TLS, 2, "b")
        assert isinstance(outcome, Deferred)
        assert outcome.reason == "pms_not_trusted"
        assert len(pms.asked) == 1


@pytest.mark.parametrize("wrong", ["authority", "expired", "host"])
async def test_a_certificate_that_is_not_trusted_is_sent_nothing(
    authority: Authority, stranger: Authority, wrong: str
) -> None:
    shown = {
        "authority": lambda: stranger.issue("pms", HERE),
        "expired": lambda: authority.issue_expired("old", HERE),
        "host": lambda: authority.issue("other", "DNS:pms.example"),
    }[wrong]()
    pms = TlsPms()
    async with reached(pms, serving(shown)) as (directory, url):
        outcome = await pushed(directory, url, trusting(authority))
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_not_trusted"
    assert {"authority": "issuer", "expired": "expired", "host": "127.0.0.1"}[wrong] in outcome.detail
    assert not pms.asked


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_the_client_certificate_that_a_pms_wants_nothing_reaches_it(
    authority: Authority,
    stranger: Authority,
    newest: ssl.TLSVersion,
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """In TLS 1.3 it says so only after the request has left."""
    # Before TLS 1.3, who shows no certificate is told no more than that the handshake failed.
    reasons = {"pms_refused_certificate"} | ({"pms_unreachable"} if newest is ssl.TLSVersion.TLSv1_2 else set())
    ours, theirs = authority.issue("forwarder"), stranger.issue("forwarder")

    async def scenario(pms: StrictPms) -> None:
        async with open_directory(QuickClock()) as directory:
            for number, tls in enumerate((trusting(authority), trusting(authority, theirs))):
                outcome = await pushed(directory, pms.url, tls, number)
                assert isinstance(outcome, Deferred), outcome
                assert outcome.reason in reasons, outcome
            assert not pms.asked
            assert isinstance(await pushed(directory, pms.url, trusting(authority, ours), 3), Confirmed)

    with StrictPms(serving(authority.issue("pms", HERE), authority, newest)) as pms:
        run(scenario(pms))
    assert pms.asked == 1


async def test_connections_are_kept_for_one_set_of_certificates_alone(authority: Authority) -> None:
    pms, one, other = TlsPms(), authority.issue("one"), authority.issue("other")
    async with reached(pms, serving(authority.issue("pms", HERE), authority)) as (directory, url):
        for number, own in enumerate((one, one, other, one)):
            assert isinstance(await pushed(directory, url, trusting(authority, own), number), Confirmed)
    assert pms.asked == ["one", "one", "other", "one"]
    assert pms.connections == 2


@pytest.mark.parametrize("wrong", ["authorities", "none", "key", "pair", "alone"])
async def test_certificates_that_cannot_be_used_say_so(authority: Authority, wrong: str) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    tls = {
        "authorities": ClientTls("no certificate"),
        "none": ClientTls(""),
        "key": ClientTls(None, one.certificate.read_text(), "no key"),
        "pair": ClientTls(None, one.certificate.read_text(), other.key.read_text()),
        "alone": ClientTls(None, one.certificate.read_text()),
    }[wrong]
    async with open_directory(SystemClock()) as directory:
        with pytest.raises(BadOptions) as caught:
            directory.connect(AccountConnection("a", "generic", "https://pms.test", "secret", tls=tls))
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://pms.example/api", "http://10.0.0.7", "http://localhost.example", "http://[half"]
)
async def test_a_card_goes_by_no_plain_http_to_another_machine(url: str) -> None:
    async with open_directory(QuickClock()) as directory:
        pms = directory.connect(AccountConnection("a", "generic", url, "secret"))
        outcome = await pms.create(booking(card=CARD))
        assert isinstance(outcome, Deferred)
        assert outcome.reason == "pms_not_encrypted"
        [outcome] = await pms.create_many([booking(card=CARD)])
        assert isinstance(outcome, Deferred)


@pytest.mark.parametrize("kind", ["generic", "hostaway"])
async def test_nor_does_a_credential_or_a_reservation(kind: str) -> None:
    """Of a row, too, that was stored when it was allowed: whatever is asked of the PMS, nothing is sent."""
    sent: list[httpx.Request] = []

    def answered(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(503)

    async with open_directory(QuickClock(), transport=replying(answered)) as directory:
        pms = directory.connect(AccountConnection("a", kind, "http://pms.example", "123:secret"))
        for asked in (pms.create(booking()), pms.find(booking()), pms.cancel(booking(), "1")):
            outcome = await asked
            assert isinstance(outcome, Deferred)
            assert outcome.reason == "pms_not_encrypted"
    assert not sent


async def test_a_reservation_may_where_a_setting_allows_that_much() -> None:
    pms = TlsPms()
    allowed = Environment(allow_plaintext_pms=True).plaintext_to_pms
    async with raw_server(pms) as server, open_directory(QuickClock(), plaintext=allowed) as directory:
        there = directory.connect(AccountConnection("a", "generic", server.url, "secret"))
        assert isinstance(await there.create(booking()), Confirmed)
        away = directory.connect(AccountConnection("a", "generic", "http://no-such-host.invalid", "secret"))
        for card, reason in ((None, "pms_unreachable"), (CARD, "pms_not_encrypted")):
            outcome = await away.create(booking(2, card=card))
            assert isinstance(outcome, Deferred)
            assert outcome.reason == reason


async def test_unless_a_setting_allows_it_or_it_stays_on_this_machine() -> None:
    pms = TlsPms()
    allowed = Environment(allow_plaintext_cards=True).plaintext_to_pms
    async with raw_server(pms) as server, open_directory(QuickClock(), plaintext=allowed) as directory:
        there = directory.connect(AccountConnection("a", "generic", server.url, "secret"))
        assert isinstance(await there.create(booking(card=CARD)), Confirmed)
        away = directory.connect(AccountConnection("a", "generic", "http://no-such-host.invalid", "secret"))
        outcome = await away.create(booking(2, card=CARD))
        assert isinstance(outcome, Deferred)
        assert outcome.reason == "pms_unreachable"
    async with reached(pms, None) as (directory, url):
        local = directory.connect(AccountConnection("a", "generic", url, "secret"))
        assert isinstance(await local.create(booking(3, card=CARD)), Confirmed)
