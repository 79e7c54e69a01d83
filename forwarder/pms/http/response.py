"""The response of a PMS: how it is read off a connection, whole and within its limits, and for how long it asks for a pause.

    Retry-After                                    with 429 and 503: seconds, or an HTTP date
    RateLimit: "default";r=0;t=30                  draft-ietf-httpapi-ratelimit-headers; several at once may be given
    RateLimit-Remaining, RateLimit-Reset           an earlier draft of the same; seconds
    X-RateLimit-Remaining, X-RateLimit-Reset       no standard: seconds, or a moment: a unix time, also in milliseconds, or a date
    X-Rate-Limit-Remaining, X-Rate-Limit-Reset     the same
    X-FiveMinCreditLimit-Remaining, -ResetsIn      Beds24, by its OpenAPI file; seconds
    X-Five-Min-Limit-Remaining, -Resets-In         Beds24, as it is served

A header that cannot be read, or makes no sense, is ignored: the PMS will say so again.

Also why a request brought no response: `NotSent` or `NoResponse`, which alone decide whether anything was sent. Their texts are
shortened and rid of long runs of digits, and quote no address and no header: these may hold a password.
"""

import codecs
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from forwarder.http.parameters import MAX_RETRY_AFTER, charset_of, read_retry_after
from forwarder.pms.responses import shortened
from forwarder.reservation.fast import read_json, value
from forwarder.reservation.parsing import http_date, moment, number, whole_number

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they are sent."""

MAX_RESPONSE_BYTES: Final = 1024 * 1024
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_OVERHEAD: Final = 8
"""How much longer than its content a response may be: in chunks of one byte it is six times as long."""
_FIRST_FINAL: Final = 200

MAX_WAIT_SECONDS: Final = 3600.0
"""The longest pause that a PMS is granted; one that wants a longer one says so again."""
_FIRST_UNIX_TIME: Final = 1e9
_STANDARD: Final = b"ratelimit"
_PAIRS: Final = (
    (b"ratelimit-remaining", b"ratelimit-reset"),
    (b"x-ratelimit-remaining", b"x-ratelimit-reset"),
    (b"x-rate-limit-remaining", b"x-rate-limit-reset"),
    (b"x-fivemincreditlimit-remaining", b"x-fivemincreditlimit-resetsin"),
    (b"x-five-min-limit-remaining", b"x-five-min-limit-resets-in"),
)
_NAMES: Final = frozenset({_STANDARD, *(name for pair in _PAIRS for name in pair)})


# --- no response ---


class NotSent(Exception):
    """Nothing reached the PMS. `passing`: another try within seconds may succeed. `retry_after_seconds`: as of `Deferred`."""

    def __init__(
        self, reason: str, detail: str, *, passing: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.passing, self.retry_after_seconds = reason, detail, passing, retry_after_seconds


class NoResponse(Exception):
    """Something may have reached the PMS, and no whole response came back. `status`: of one that began, except a GET's; else 0."""

    def __init__(self, reason: str, detail: str, status: int = 0) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.status = reason, detail, status


def unreachable(why: str) -> NotSent:
    """No connection was made, or it had ended before anything was written."""
    return NotSent("pms_unreachable", f"No connection to the PMS: {shortened(why)}.", passing=True)


def refused_certificate() -> NotSent:
    detail = "The PMS wants a client certificate: the account has none, or one that the PMS does not take."
    return NotSent("pms_refused_certificate", detail)


def invalid_address(detail: str) -> NotSent:
    """Nothing that HTTP can carry or reach; only a change of the account's settings helps."""
    return NotSent("pms_address_invalid", detail)


def broke_protocol(why: str) -> NoResponse:
    return NoResponse("pms_broke_protocol", f"The PMS was sent the request; its answer is not HTTP: {shortened(why)}.")


def connection_lost(why: str) -> NoResponse:
    return NoResponse("pms_connection_lost", f"The connection was lost before the PMS had answered: {shortened(why)}.")


# --- a response, and the pause it asks for ---


@value(frozen=True, slots=True)
class Response:
    """A whole response: `content` is decoded. `headers` are as they came, in their order."""

    status_code: int
    headers: Headers = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)

    def header_values(self, name: str) -> list[str]:
        """The values of every header of that name, in any case of letters."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for known, value in self.headers if known.lower() == wanted]

    def header(self, name: str) -> str | None:
        """The values together, with commas between; None where there is no such header."""
        return ", ".join(values) if (values := self.header_values(name)) else None

    @property
    def json_text(self) -> bytes:
        """The content for a reader of JSON: in UTF-8, without a byte order mark. Halves of surrogate pairs, and bytes that are not
        of its charset, are U+FFFD: they must not make a confirmation unreadable."""
        if self.content.isascii() and b"\\ud" not in self.content and b"\\uD" not in self.content:  # as nearly always
            return self.content
        content = self.content.removeprefix(codecs.BOM_UTF8)
        try:
            text = content.decode()  # JSON is UTF-8, whatever the header says (RFC 8259, section 8.1)
        except UnicodeDecodeError:
            # What cannot be is in the charset that is declared, or in UTF-16 or UTF-32 where its first bytes show that.
            declared, detected = charset_of(self.header("content-type") or ""), json.detect_encoding(content)
            text = content.decode(declared or detected if detected.startswith("utf-8") else detected, "replace")
        pair, lone = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", r"u[dD][89a-fA-F][0-9a-fA-F]{2}"
        whole = re.sub(rf"(?s)\\(?:{pair}|({lone})|.)", lambda escape: "\ufffd" if escape[1] else escape[0], text)
        return whole.encode("utf-8", "replace")


def read_object(response: Response) -> dict[str, Any] | None:
    """The JSON object in the body, None where it holds anything else."""
    try:
        body = read_json(response.json_text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def retry_after(response: Response, now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for, from its number, its date, or a unix time instead; None without a usable one."""
    asked = response.header_values("retry-after")
    seconds = read_retry_after(asked[0], now) if asked else None  # of several, the first
    if seconds is not None and _FIRST_UNIX_TIME <= seconds < MAX_RETRY_AFTER:
        seconds -= now.timestamp()
    return None if seconds is None else bounded(seconds)


def bounded(seconds: float) -> float:
    """A wait that can be kept: not negative, at most `MAX_WAIT_SECONDS`."""
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS)


def hold_off_asked(response: Response, now: datetime) -> float:
    """Seconds until the PMS takes requests again, at most `MAX_WAIT_SECONDS`; 0.0 where it asks for no pause."""
    is_busy = response.status_code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    if not is_busy and _NAMES.isdisjoint([name.lower() for name, _ in response.headers]):  # as nearly always
        return 0.0
    headers: dict[bytes, bytes] = {}
    for name, text in response.headers:
        if (known := name.lower()) in _NAMES:
            headers[known] = b",".join((headers[known], text)) if known in headers else text
    asked = [(retry_after(response, now) or 0.0) if is_busy else 0.0]
    for policy in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", headers.get(_STANDARD, b"")).split(b","):
        spare, seconds = (re.search(rb";\s*%b=(\d{1,15})\s*(?:;|$)" % name, policy) for name in (b"r", b"t"))
        if spare is not None and seconds is not None and int(spare[1]) == 0:
            asked.append(float(seconds[1]))
    for pair in _PAIRS:
        left, until = (headers.get(name, b"").decode("latin-1").strip() for name in pair)
        remaining = number(left) if left or response.status_code != HTTPStatus.TOO_MANY_REQUESTS else 0.0
        if remaining is not None and remaining < 1.0:
            asked.append(_seconds_until(until, now))
    # No limit is as long as a day: a reset so far off is in another unit, or by another clock.
    return bounded(max(seconds for seconds in asked if seconds <= 24 * 60 * 60.0))


def _seconds_until(text: str, now: datetime) -> float:
    seconds, date = number(text), moment(text) or http_date(text)
    if seconds is None:
        return 0.0 if date is None else (date - now).total_seconds()
    if seconds >= _FIRST_UNIX_TIME * 1000:
        seconds /= 1000
    return seconds if seconds < _FIRST_UNIX_TIME else seconds - now.timestamp()


# --- read off a connection ---


class ResponseReader:
    """The responses that come over one connection, one after the other: `begin`, `feed` until it is True, `response`.

    `reusable`: after a response, whether another may come; not where it ends with the connection, or was followed by more bytes.
    `status`: of the response as soon as its head is there, else 0. `received`: bytes until it was whole. Informational responses
    (1xx) are skipped. `close` it in the end. It raises `NoResponse`: `pms_broke_protocol` for what is not HTTP/1.1, or is
    compressed in a way that is not read here; `pms_connection_lost` for more than the limits."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # As lenient as other clients: what this changes is where lines end, not where a response does.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self.reusable = True
        self.begin()

    def begin(self, *, bodiless: bool = False) -> None:
        """Forgets the previous response. `bodiless`: the next one answers a HEAD, and has no body even if its head declares one."""
        self._bodiless = bodiless
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._coding = b""
        self._body: list[bytes] = []
        self._size = self.received = 0
        self._in_body = self._framed = self._whole = False
        self._refused: NoResponse | None = None

    def feed(self, data: bytes) -> bool:
        """Whether the response is whole."""
        assert self._parser is not None  # noqa: S101 - nothing comes over a connection that has ended
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.reusable = False
            if not self._whole:
                raise self._refused or broke_protocol(f"not an HTTP response: {error}") from None
        if not self._whole:
            self.received += len(data)
            if not self._in_body and self.received > _MAX_HEAD_BYTES:
                raise connection_lost(f"a response of more than {_MAX_HEAD_BYTES} bytes before its body")
            if self.received > _MAX_OVERHEAD * self._max_bytes:
                raise connection_lost(f"a response of more than {_MAX_OVERHEAD * self._max_bytes} bytes on the wire")
        return self._whole

    def end(self) -> bool:
        """The peer has ended. Whether this makes the response whole: it does where nothing else says how long it is."""
        self._whole = self._in_body and not self._framed
        return self._whole

    def response(self) -> Response:
        """The response, which is whole. Raises `NoResponse` where it cannot be decoded."""
        content = b"".join(self._body)
        # The last four are no codings, and some servers name them all the same.
        if self._coding in {b"", b"identity", b"none", b"binary", b"utf-8", b"utf8"} or not content:
            return Response(self.status, self._headers, content)
        kept = [each for each in self._headers if each[0].lower() not in (b"content-encoding", b"content-length")]
        return Response(self.status, kept, _decoded(content, self._coding, self._max_bytes))

    def close(self) -> None:
        """The parser refers to this, and this to the parser: neither would go before a collection of cycles."""
        self._parser = None

    # --- what httptools calls; an error that is raised here ends its reading ---

    def on_message_begin(self) -> None:
        if self._whole:
            self._refuse(broke_protocol("more than one response"))
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = 0 if self._parser is None else self._parser.get_status_code()
        if status < _FIRST_FINAL:
            return
        self.status, self._in_body = status, True
        for name, text in self._headers:
            match name.lower():
                case b"content-length":
                    self._framed = True
                    size = whole_number(text.decode("latin-1").strip())
                    has_body = not self._bodiless and status not in (204, 304)
                    if has_body and (size is None or size > self._max_bytes):
                        self._refuse(connection_lost(f"a response of {text[:20].decode('latin-1')} bytes"))
                case b"transfer-encoding":
                    self._framed = True
                case b"content-encoding":
                    self._coding = text.strip().lower()
        if self._bodiless:
            self._whole, self.reusable = True, False  # the parser waits for a body

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._max_bytes:
            self._refuse(connection_lost(f"a response of more than {self._max_bytes} bytes"))
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser is not None and self.status >= _FIRST_FINAL:
            self._whole, self.reusable = True, self.reusable and self._parser.should_keep_alive()

    def _refuse(self, error: NoResponse) -> None:
        self._refused = error
        raise error


def _decoded(content: bytes, coding: bytes, max_bytes: int) -> bytes:
    """`content` without its compression, which was not asked for unless a request did so itself; no more than `max_bytes`."""
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise broke_protocol("a response in a coding that was not asked for")
    inflation, wrong = zlib.decompressobj(32 + zlib.MAX_WBITS), "a response that is not compressed as it says"
    try:
        whole = inflation.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise broke_protocol(wrong) from error
    if len(whole) > max_bytes:
        raise connection_lost(f"a response of more than {max_bytes} bytes")
    if not inflation.eof or inflation.unused_data:
        raise broke_protocol(wrong)
    return whole
