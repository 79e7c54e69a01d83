"""How a connection to a PMS comes to stand: the addresses of a name, the first that takes it, and TLS where it is asked for."""

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final, TypeVar

from forwarder.pms.http.client import Origin
from forwarder.pms.http.errors import not_trusted, refused_certificate, unreachable
from forwarder.pms.http.trust import system_trust

_HEAD_START_SECONDS: Final = 0.25
"""How long an address is tried alone before the next is tried as well (RFC 8305)."""
_GOODBYE_SECONDS: Final = 1.0
"""How long a PMS may take to agree that a TLS connection ends."""

_ENDED: Final = "the connection ended before TLS was agreed on"

_REFUSALS: Final = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
)

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class Securable(asyncio.Protocol, ABC):
    """A protocol that can switch its connection to TLS."""

    @abstractmethod
    def secure(self, transport: asyncio.Transport) -> None:
        """From now on it is `transport`, over the one that it was made with."""


C = TypeVar("C", bound=Securable)


async def connect(make: Callable[[], C], origin: Origin, trusted: ssl.SSLContext | None) -> C:
    """An established connection, after the TLS handshake. `trusted`: the authorities to trust; the system's, unless given.

    Raises `NotSent`. Being cancelled leaves nothing open.
    """
    try:
        peer = await _first_of(await _addresses(origin))
        try:
            return await _upon(peer, make, origin, trusted)
        except BaseException:
            peer.close()
            raise
    except ssl.SSLCertVerificationError as error:
        raise not_trusted(error.verify_message) from error
    except (OSError, ValueError) as error:  # certificates and names that cannot be are ValueErrors
        if is_refusal(error):
            raise refused_certificate() from error
        raise unreachable(str(error) or type(error).__name__) from error


async def _upon(peer: socket.socket, make: Callable[[], C], origin: Origin, trusted: ssl.SSLContext | None) -> C:
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


def is_refusal(error: Exception | None) -> bool:
    """Whether it is a PMS's alert that it does not take our certificate, or wants one."""
    return isinstance(error, ssl.SSLError) and (error.reason or "").endswith(_REFUSALS)


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
