"""One connection to a PMS: requests go out over it in one piece, one at a time, and their responses are read whole.

NotSent       the lease was lost, or the connection had ended, before anything was written
NoResponse    something may have been sent
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final, cast

import certifi

from forwarder.pms.http.errors import NoResponse, NotSent, connection_lost, unreachable
from forwarder.pms.http.request import Origin
from forwarder.pms.http.response import Response, ResponseReader
from forwarder.pms.port import LEASE_LOST

_HEAD_START_SECONDS: Final = 0.25
"""How long an address is tried alone before the next is tried as well (RFC 8305)."""
_GOODBYE_SECONDS: Final = 1.0
"""How long a PMS may take to agree that a TLS connection ends."""

_ENDED: Final = "the connection ended before TLS was agreed on"

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

Held = Callable[[], bool]
"""Whether what is to be sent may still be sent. Asked in the very step of the event loop that then writes it; must not wait."""


class Connection(asyncio.Protocol):
    """`expires`, by the loop's clock, is when `expire` is to be called: during an exchange at the end of its time, and between two
    of them as its keeper sets it. `on_lost` is called once, when it has ended.

    Bytes that come when nothing was asked end it.
    """

    def __init__(self, max_bytes: int, on_lost: Callable[["Connection"], None]) -> None:
        self._on_lost = on_lost
        self._reader = ResponseReader(max_bytes)
        self._loop = asyncio.get_running_loop()
        self._readable = select.poll()
        self._pending: asyncio.Future[None] | None = None
        self._failure: NoResponse | None = None
        self.expires = float("inf")

    async def exchange(
        self, content: bytes, until: float, *, held: Held | None = None, bodiless: bool = False
    ) -> Response:
        """The response to `content`, a whole request, before `until` by the loop's clock; `bodiless`: to a HEAD.

        Where there is none, the connection has ended, unless the lease was lost. Where this is cancelled, `abort` it: what was
        written by then may reach the PMS all the same.
        """
        if self._transport.is_closing():
            raise unreachable("the connection ended before anything was sent")
        if held is not None and not held():
            raise NotSent(LEASE_LOST, "It was held no longer when this was to be sent.")
        self._transport.write(content)  # in one step with the look above: nothing is awaited in between
        self._reader.begin(bodiless=bodiless)
        self._pending = pending = self._loop.create_future()
        self.expires = until
        await pending
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # which knows this frame: a cycle
        return self._reader.response()

    def is_open(self) -> bool:
        """Whether it has not ended, as far as the loop has seen."""
        return not self._transport.is_closing()

    def is_reusable(self) -> bool:
        """After an exchange: whether the next may use it."""
        open_still = self._pending is None and not self._transport.is_closing()
        # A response that came before all of its request had left: what reads the rest, if anything, is not known.
        return open_still and self._reader.reusable and not self._waiting_to_leave()

    def is_fit(self) -> bool:
        """Between two exchanges: whether it stands, and nothing has come over it, not even an end that the loop has yet to see."""
        return not self._transport.is_closing() and not self._readable.poll(0)

    def keep_for(self, seconds: float) -> None:
        """Between two exchanges: it expires in so many seconds."""
        self.expires = self._loop.time() + seconds

    def expire(self) -> None:
        """End it, for its time is over."""
        if self._pending is None:
            self._transport.close()
        else:
            self._fail(NoResponse("pms_timed_out", "The PMS was sent the request and did not answer in time."))

    def abort(self) -> None:
        """End it at once. An exchange that is under way fails."""
        self._fail(connection_lost("it was given up"))

    def secure(self, transport: asyncio.Transport) -> None:
        """From now on it is `transport`, over the one that it was made with."""
        self._transport = transport

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._underneath = cast(asyncio.Transport, transport)
        self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._pending is None:
            self._transport.abort()
            return
        try:
            if self._reader.feed(data):
                self._finish()
        except NoResponse as error:
            self._fail(error)

    def eof_received(self) -> None:
        if self._pending is not None and self._reader.end():
            self._finish()
        else:
            self._fail(connection_lost("it ended before the response was whole"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(connection_lost(f"the connection was lost: {exc}"))
        self._reader.close()
        self._on_lost(self)

    def _waiting_to_leave(self) -> int:
        return self._transport.get_write_buffer_size() + self._underneath.get_write_buffer_size()

    def _fail(self, error: NoResponse) -> None:
        if self._pending is not None:
            self._failure = error
            self._finish()
        self._transport.abort()

    def _finish(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(None)


# --- how one comes to stand: the addresses of a name, the first that takes it, and TLS where the address asks for it ---


async def connect(make: Callable[[], Connection], origin: Origin, trusted: ssl.SSLContext | None) -> Connection:
    """A connection that stands, TLS and all. `trusted`: whose certificates are believed; the system's, unless given.

    Raises `NotSent`. Being cancelled leaves nothing open.
    """
    try:
        peer = await _first_of(await _addresses(origin))
        try:
            return await _upon(peer, make, origin, trusted)
        except BaseException:
            peer.close()
            raise
    except (OSError, ValueError) as error:  # certificates and names that cannot be are ValueErrors
        raise unreachable(str(error) or type(error).__name__) from error


async def _upon(
    peer: socket.socket, make: Callable[[], Connection], origin: Origin, trusted: ssl.SSLContext | None
) -> Connection:
    loop = asyncio.get_running_loop()
    plain, connection = await loop.create_connection(make, sock=peer)
    if origin.tls:
        if plain.is_closing():
            raise ConnectionError(_ENDED)
        secured = await loop.start_tls(
            plain,
            connection,
            trusted or system_trust(),
            server_hostname=origin.host,
            ssl_shutdown_timeout=_GOODBYE_SECONDS,
        )
        if secured is None:  # closed meanwhile
            raise ConnectionError(_ENDED)
        connection.secure(secured)
    return connection


@cache
def system_trust() -> ssl.SSLContext:
    """Believes whom the system does; on a machine without certificates of its own, such as a bare container, whom Mozilla does."""
    paths = ssl.get_default_verify_paths()
    there_are = paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
    context = ssl.create_default_context(cafile=None if there_are else certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def _addresses(origin: Origin) -> Sequence[tuple[socket.AddressFamily, _Address]]:
    """The host's, in the system's order, but of either family in turn."""
    found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    first = [(family, address) for family, *_, address in found if family == found[0][0]]
    second = [(family, address) for family, *_, address in found if family != found[0][0]]
    return [each for each in chain.from_iterable(zip_longest(first, second)) if each is not None]


async def _first_of(addresses: Sequence[tuple[socket.AddressFamily, _Address]]) -> socket.socket:
    """Connected to the first that takes it, each tried a little after the one before. Raises `OSError` where none does."""
    untried, tried = list(addresses), list[asyncio.Task[socket.socket]]()
    under_way: set[asyncio.Task[socket.socket]] = set()
    try:
        while True:
            if untried:
                tried.append(asyncio.create_task(_connected(*untried.pop(0))))
                under_way.add(tried[-1])
            pause = _HEAD_START_SECONDS if untried else None
            done, under_way = await asyncio.wait(under_way, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                if attempt.exception() is None or not (untried or under_way):
                    tried.remove(attempt)
                    return attempt.result()
    finally:
        await _call_off(tried)


async def _call_off(attempts: Iterable[asyncio.Task[socket.socket]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, socket.socket):
            outcome.close()


async def _connected(family: socket.AddressFamily, address: _Address) -> socket.socket:
    peer = socket.socket(family, socket.SOCK_STREAM)
    try:
        peer.setblocking(False)  # noqa: FBT003 - its only parameter
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(peer, address)
    except BaseException:
        peer.close()
        raise
    return peer
