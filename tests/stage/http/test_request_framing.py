"""What a proxy and this server could read differently is refused, and ends its connection: nothing is read behind it."""

from collections.abc import Callable

import pytest
from starlette.types import Receive, Scope, Send

from forwarder.http.messages import Response
from tests.support.network.raw_client import exchange, served

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

REFUSED = {
    "both lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "both lengths, the other way": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + END,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 52\r\n\r\n",
    "two equal lengths": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": POST + b"Content-Length: +0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "no length": POST + b"Content-Length: \r\n\r\n",
    "a hexadecimal length": POST + b"Content-Length: 0x0\r\n\r\n",
    "a length of 400 digits": POST + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n",
    "a length of 5,000 zeros": POST + b"Content-Length: " + b"0" * 5000 + b"\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + END,
    "chunked not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + END,
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + END,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + END,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "two lines of codings": POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "a quoted coding": POST + b'Transfer-Encoding: "chunked"\r\n\r\n' + END,
    "a coding with parameters": POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n" + END,
    "chunked in HTTP/1.0": b"POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "a vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + END,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + END,
    "a folded line": POST + b"X: a\r\n b\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "space before a colon": POST + b"Transfer-Encoding : chunked\r\n\r\n" + END,
    "no name": POST + b": x\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare LF in a line": b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "bare LF at the end of the head": b"GET / HTTP/1.1\r\nHost: x\r\n\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
    "NUL": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
    "a chunk size with LF": CHUNKED + b"1\na\r\n" + END,
    "a chunk extension with LF": CHUNKED + b"1;\nx\r\na\r\n" + END,
    "a chunk size with a blank": CHUNKED + b"1 \r\na\r\n" + END,
    "a chunk size with 0x": CHUNKED + b"0x1\r\na\r\n" + END,
    "a chunk size with a sign": CHUNKED + b"+1\r\na\r\n" + END,
    "a chunk size beyond all": CHUNKED + b"fffffffffffffffff\r\n",
    "a chunk that is longer than it says": CHUNKED + b"1\r\naXX" + END,
    "a chunk that ends with LF": CHUNKED + b"1\r\na\n" + END,
    "a trailer with LF": CHUNKED + b"0\r\nX: y\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "the same Host twice": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "two Hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    "no Host, but a target that has one": b"GET http://a/ HTTP/1.1\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/0.9 with a head": b"GET / HTTP/0.9\r\nHost: x\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an address that is no HTTP": b"GET ftp://a/b HTTP/1.1\r\nHost: x\r\n\r\n",
    "an address with a user": b"GET http://me@a/b HTTP/1.1\r\nHost: x\r\n\r\n",
    "an address without a host": b"GET http:///b HTTP/1.1\r\nHost: x\r\n\r\n",
    "Upgrade and two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "Upgrade and both lengths": POST
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    + END,
    "Upgrade and an unknown coding": POST
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: xchunked\r\n\r\n"
    + END,
}
INVALID_HOSTS: tuple[bytes, ...] = (
    b"a b",
    b"a/b",
    b"evil.test/../x?y#",
    b"a@b",
    b"[",
    b"[::1",
    b"[::::]",
    b"[x]",
    b"::1",
    b"x:y",
    b"x:999999",
)
INVALID_HOSTS += (b"\xff\xfe", b"a, b", b"a\\b", b"%zz", b"x:-1", b"<x>")
VALID_HOSTS = (
    b"",
    b"x",
    b"x:",
    b"x:80",
    b"EXAMPLE.test:8080",
    b"127.0.0.1",
    b"[::1]",
    b"[2001:db8::1]:443",
    b"a%20b",
    b"a_b",
)
WHOLE: Callable[[bytes], list[bytes]] = lambda sent: [sent]  # noqa: E731 - one of two
BYTE_BY_BYTE: Callable[[bytes], list[bytes]] = lambda sent: [sent[at : at + 1] for at in range(len(sent))]  # noqa: E731


class App:
    """Says which host and path it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        hosts = b"|".join(value for name, value in scope["headers"] if name == b"host")
        await Response(200, b"%b %b" % (hosts, scope["path"].encode()))(scope, receive, send)


@pytest.mark.parametrize("cut", [WHOLE, BYTE_BY_BYTE], ids=["whole", "byte by byte"])
async def test_what_can_be_read_in_two_ways_is_refused(cut: Callable[[bytes], list[bytes]]) -> None:
    app, wrong = App(), {}
    async with served(app) as port:
        for name, sent in REFUSED.items():
            said = await exchange(port, cut(sent + SMUGGLED))
            statuses = [each.status for each in said]
            if statuses != [400] or said[0].headers["connection"] != "close":
                wrong[name] = statuses
    assert wrong == {}
    assert "/smuggled" not in app.asked


async def test_a_refusal_says_why_and_has_a_date_and_an_id() -> None:
    async with served(App()) as port:
        (said,) = await exchange(port, [REFUSED["two Hosts"]])
    assert (said.headers["content-type"], said.body) == (
        "text/plain; charset=utf-8",
        b"A request must have one Host header, not 2.",
    )
    assert {"date", "request-id"} <= said.headers.keys()


async def test_a_host_that_is_none_is_refused_and_one_that_is_one_is_taken() -> None:
    refused: dict[bytes, bytes] = {}
    taken: dict[bytes, bytes] = {}
    async with served(App()) as port:
        for host in (*INVALID_HOSTS, *VALID_HOSTS):
            sent = b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
            (said,) = await exchange(port, [sent])
            (refused if said.status == 400 else taken)[host] = said.body
    assert set(refused) == set(INVALID_HOSTS)
    assert taken == {host: host + b" /" for host in VALID_HOSTS}


async def test_connect_is_not_supported_and_nothing_is_read_behind_it() -> None:
    app = App()
    async with served(app) as port:
        (said,) = await exchange(port, [b"CONNECT pms.test:443 HTTP/1.1\r\nHost: pms.test\r\n\r\n" + SMUGGLED])
    assert (said.status, said.headers["connection"], app.asked) == (501, "close", [])


async def test_the_host_of_an_absolute_target_replaces_the_header() -> None:
    async with served(App()) as port:
        line = b"GET http://real.test:81/a?b HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n"
        (said,) = await exchange(port, [line])
    assert said.body == b"real.test:81 /a"


async def test_http_1_0_needs_no_host_and_gets_no_100() -> None:
    async with served(App()) as port:
        lines = b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab"
        (said,) = await exchange(port, [lines])
    assert (said.status, said.headers["connection"], said.body) == (200, "close", b" /a")


async def test_an_odd_path_is_a_path() -> None:
    async with served(App()) as port:
        for path in (b"/%00", b"/%0d%0aX:%20y", b"/%ed%a0%80", b"/..%2f..%2fetc/passwd", b"//a", b"/a;b"):
            sent = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert [said.status for said in await exchange(port, [sent])] == [200], path


async def test_what_comes_behind_close_is_not_read() -> None:
    app = App()
    async with served(app) as port:
        said = await exchange(port, [b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + SMUGGLED])
    assert ([each.status for each in said], app.asked) == ([200], ["/last"])
