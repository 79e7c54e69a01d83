"""The way to endpoints, against real servers: what is sent, what each ending is called, and where no connection is ever made."""

import base64
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from forwarder.webhooks.addresses import AddressRule, Resolve
from forwarder.webhooks.port import EndpointResponse, PostResult, Unanswered
from forwarder.webhooks.sender import HttpSender
from tests.support.memory.clock import ManualClock
from tests.support.network.raw_server import Caller, raw_server
from tools.servers.server_process import free_ports

TRYING = AddressRule(loopback=True)
START = datetime(2027, 1, 1, tzinfo=UTC)
Script = Callable[[Caller], Awaitable[None]]


@asynccontextmanager
async def sender(
    rule: AddressRule = TRYING,
    *,
    seconds: float = 10.0,
    find: Resolve | None = None,
    trusted: ssl.SSLContext | None = None,
    proxy: str | None = None,
) -> AsyncIterator[HttpSender]:
    sender = HttpSender(rule, ManualClock(START), seconds=seconds, find=find, trusted=trusted, proxy=proxy)
    async with aclosing(sender) as opened:
        yield opened


def leading_to(*addresses: str) -> Resolve:
    """A name server that gives these, and the next time none but the last."""

    async def find(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return find


def saying(answer: bytes) -> Script:
    async def script(caller: Caller) -> None:
        while await caller.request():
            await caller.say(answer)

    return script


async def reply_to(script: Script, *, seconds: float = 10.0) -> PostResult:
    async with raw_server(script) as server, sender(seconds=seconds) as posting:
        return await posting.post(server.url + "/hook", {"webhook-id": "1"}, b"{}")


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def test_a_proxy_carries_what_it_may_and_is_asked_for_nothing_else() -> None:
    heads: list[bytes] = []

    async def script(caller: Caller) -> None:
        heads.append(await caller.request())
        await caller.say(answer("403 Forbidden"))

    async with raw_server(script) as server:
        through = server.url.replace("http://", "http://forwarder:pass%40word@")
        public = AddressRule()
        async with sender(public, proxy=through) as posting:
            refused = await posting.post("https://bookings.example/hook", {}, b"{}")
            inner = [
                await posting.post(f"https://{host}/hook", {}, b"{}")
                for host in ("10.0.0.8", "127.1", "[::1]", "0xa000008.")
            ]
            plain = await posting.post("http://bookings.example/hook", {}, b"{}")
    assert [each.failure for each in (refused, *inner, plain) if isinstance(each, Unanswered)] == [
        "connect_failed",
        *["address_refused"] * 5,
    ]
    (head,) = heads
    assert head.startswith(b"CONNECT bookings.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"forwarder:pass@word") in head


async def test_a_proxy_passes_the_response_on() -> None:
    rule = AddressRule(private=True)
    async with raw_server(saying(answer("204 No Content"))) as server, sender(rule, proxy=server.url) as posting:
        assert await posting.post("http://bookings.example/hook", {}, b"{}") == EndpointResponse(204)


async def test_what_is_sent_is_what_was_given() -> None:
    requests: list[bytes] = []

    async def script(caller: Caller) -> None:
        for _ in range(2):
            requests.append(await caller.request())
            await caller.say(answer("204 No Content"))

    async with raw_server(script) as server, sender() as posting:
        headers = {"webhook-id": "msg_1", "content-type": "application/json"}
        for body in (b'{"a":1}', b"{}"):
            assert await posting.post(f"{server.url}/hook?a=b", headers, body) == EndpointResponse(204)
        assert server.connections == 1
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook?a=b HTTP/1.1\r\n")
    assert {b"webhook-id: msg_1", b"content-type: application/json", b"Content-Length: 7"} < set(head.split(b"\r\n"))
    assert f"Host: {server.url.removeprefix('http://')}".encode() in head
    assert body == b'{"a":1}'


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with raw_server(saying(answer("200 OK"))) as elsewhere:
        moved = await reply_to(saying(answer("302 Found", f"Location: {elsewhere.url}")))
        assert moved == EndpointResponse(302)
        assert elsewhere.connections == 0


async def test_a_failure_keeps_the_beginning_of_what_was_said() -> None:
    said = await reply_to(saying(answer("500 Oops", body=b"no \x00 luck\r\n today " + b"x" * 5000)))
    assert isinstance(said, EndpointResponse)
    assert said.excerpt.startswith("no luck today xxx")
    assert len(said.excerpt) == 200
    assert await reply_to(saying(answer("200 OK", body=b"thanks"))) == EndpointResponse(200)


async def test_an_endless_answer_is_not_read() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await caller.say(b"400\r\n" + b"x" * 1024 + b"\r\n")

    assert await reply_to(script) == EndpointResponse(200)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("120", 120.0), (format_datetime(START + timedelta(hours=1), usegmt=True), 3600.0), ("soon", None)],
)
async def test_what_it_asks_for_is_read(asked: str, seconds: float | None) -> None:
    assert await reply_to(saying(answer("503 Busy", f"Retry-After: {asked}"))) == EndpointResponse(503, seconds)


# --- no answer --------------------------------------------------------------------------------------------------------------


async def test_one_that_never_answers_is_given_up() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.gone()

    said = await reply_to(script, seconds=0.05)
    assert said == Unanswered("timed_out", "No complete response within 0.05 s.")


async def test_one_whose_answer_has_no_end_is_given_up_after_the_same_time() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        await caller.gone()

    assert await reply_to(script, seconds=0.1) == Unanswered("timed_out", "No complete response within 0.1 s.")


async def test_a_connection_that_is_reset_is_lost() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        caller.reset()

    said = await reply_to(script)
    assert isinstance(said, Unanswered)
    assert said.failure == "connection_lost"


async def test_what_is_not_http_is_called_so() -> None:
    said = await reply_to(saying(b"SSH-2.0-OpenSSH_9.6 4111111111111111\r\n\r\n"))
    assert isinstance(said, Unanswered)
    assert said.failure == "not_http"
    assert "OpenSSH" in said.detail
    assert "411111111111" not in said.detail


async def test_nobody_there_and_a_name_that_leads_nowhere() -> None:
    async def nobody_knows(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    (port,) = free_ports(1)
    async with sender() as posting, sender(find=nobody_knows) as lost:
        refused = await posting.post(f"http://127.0.0.1:{port}/", {}, b"")
        unknown = await lost.post("https://nobody.example/", {}, b"")
        senseless = await posting.post("gopher://127.0.0.1/", {}, b"")
    failures = [each.failure for each in (refused, unknown, senseless) if isinstance(each, Unanswered)]
    assert failures == ["connect_failed", "host_unknown", "address_invalid"]


# --- where no connection is made --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_connection_is_made_to_what_the_rule_forbids(scheme: str) -> None:
    async with raw_server(saying(answer("200 OK"))) as server:
        _, _, port = server.url.rpartition(":")
        async with sender(AddressRule()) as posting, sender(AddressRule(), find=leading_to("127.0.0.1")) as named:
            for said in (
                await posting.post(f"{scheme}://127.0.0.1:{port}/", {}, b""),
                await named.post(f"{scheme}://innocent.example:{port}/", {}, b""),
            ):
                assert isinstance(said, Unanswered)
                assert said.failure == "address_refused"
        assert server.connections == 0


async def test_a_name_that_changes_its_mind_is_looked_at_with_every_connection() -> None:
    """DNS rebinding: the first answer is harmless, the next one leads inside. What was checked is what is connected to."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def find(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0)

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(answer("200 OK", "Connection: close"))

    async with raw_server(script) as server, sender(find=find) as posting:
        url = f"http://fickle.example:{server.url.rpartition(':')[2]}/"
        assert await posting.post(url, {}, b"") == EndpointResponse(200)
        said = await posting.post(url, {}, b"")
        assert isinstance(said, Unanswered)
        assert said.failure == "address_refused"


async def test_of_several_addresses_the_next_is_tried() -> None:
    async with raw_server(saying(answer("200 OK"))) as server:
        port = server.url.rpartition(":")[2]
        async with sender(find=leading_to("10.0.0.1", "127.0.0.2", "127.0.0.1")) as posting:
            # 127.0.0.2 is this machine too, and nobody listens there.
            assert await posting.post(f"http://several.example:{port}/", {}, b"") == EndpointResponse(200)


# --- TLS --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for hook.example, with its key, that only itself vouches for."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    file = tmp_path / "hook.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(file), "-out", str(tmp_path / "certificate.pem"), "-days", "2"),
            *("-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + (tmp_path / "certificate.pem").read_text())
    return file


async def test_the_name_is_verified_though_an_address_is_connected_to(certificate: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate.with_name("certificate.pem")))
    find = leading_to("127.0.0.1")
    async with raw_server(saying(answer("200 OK")), tls=serving) as server:
        port = server.url.rpartition(":")[2]
        async with sender(find=find, trusted=trusted) as posting, sender(find=find) as doubting:
            assert await posting.post(f"https://hook.example:{port}/", {}, b"") == EndpointResponse(200)
            for said in (
                await posting.post(f"https://other.example:{port}/", {}, b""),
                await doubting.post(f"https://hook.example:{port}/", {}, b""),
            ):
                assert isinstance(said, Unanswered)
                assert said.failure == "tls_failed"
