"""How a connection to a PMS is established: the addresses of a name, the first that takes it, TLS where it is asked for, and the
certificates that it trusts and shows (an SSL context for each account that has its own, made once)."""

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final, TypeVar

import certifi

from forwarder.pms.http.client import Origin
from forwarder.pms.http.response import NotSent, refused_certificate, unreachable
from forwarder.pms.port import BadOptions, ClientTls
from forwarder.pms.responses import shortened

_HEAD_START_SECONDS: Final = 0.25
"""How long an address is tried alone before the next is tried as well (RFC 8305)."""
_GOODBYE_SECONDS: Final = 1.0
"""How long a PMS may take to agree that a TLS connection ends."""

_REFUSALS: Final = tuple(
    """
    ALERT_CERTIFICATE_REQUIRED ALERT_BAD_CERTIFICATE ALERT_UNSUPPORTED_CERTIFICATE ALERT_CERTIFICATE_REVOKED
    ALERT_CERTIFICATE_EXPIRED ALERT_CERTIFICATE_UNKNOWN ALERT_UNKNOWN_CA
    """.split()
)

_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
C = TypeVar("C", bound=asyncio.Protocol)


async def connect(
    make: Callable[[], C], origin: Origin, trusted: ssl.SSLContext | None
) -> tuple[C, asyncio.Transport | None]:
    """An established connection, and after a TLS handshake the transport that is to replace its own. `trusted`: the authorities to
    trust; the system's, unless given. Raises `NotSent`. Being cancelled leaves nothing open."""
    try:
        peer = await _first_of(await _addresses(origin))
        try:
            plain, connection = await asyncio.get_running_loop().create_connection(make, sock=peer)
            secured = await _secured(plain, connection, origin, trusted or system_trust()) if origin.tls else None
        except BaseException:
            peer.close()
            raise
    except ssl.SSLCertVerificationError as error:
        # Of another name, of an authority that is not trusted, or expired.
        detail = f"The PMS's certificate is not trusted: {shortened(error.verify_message)}."
        raise NotSent("pms_not_trusted", detail) from error
    except (OSError, ValueError) as error:  # certificates and names that cannot be are ValueErrors
        if is_refusal(error):
            raise refused_certificate() from error
        raise unreachable(str(error) or type(error).__name__) from error
    return connection, secured


async def _secured(
    plain: asyncio.Transport, connection: asyncio.Protocol, origin: Origin, trusted: ssl.SSLContext
) -> asyncio.Transport:
    if not plain.is_closing():
        secured = await asyncio.get_running_loop().start_tls(
            plain, connection, trusted, server_hostname=origin.host, ssl_shutdown_timeout=_GOODBYE_SECONDS
        )
        if secured is not None:  # else it was closed meanwhile
            return secured
    raise ConnectionError("the connection ended before TLS was agreed on")


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
        for attempt in tried:
            attempt.cancel()
        for outcome in await asyncio.gather(*tried, return_exceptions=True):
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


# --- trust ---


@cache
def system_trust() -> ssl.SSLContext:
    """Believes whom the system does; on a machine without certificates of its own, such as a bare container, whom Mozilla does."""
    return _new_context(None)


@lru_cache(maxsize=1024)
def trust_of(tls: ClientTls) -> ssl.SSLContext:
    """The same one for the same certificates. Raises `BadOptions` where they cannot be used, or do not fit together."""
    if tls.authorities == "" or (tls.certificate is None) != (tls.key is None):
        raise BadOptions("A client certificate needs its key, and authorities are one certificate or more (PEM).")
    try:
        context = _new_context(tls.authorities)
    except ssl.SSLError as error:
        raise BadOptions(f"The authorities cannot be read as PEM certificates: {error.reason or error}.") from None
    if tls.certificate is not None and tls.key is not None:
        try:
            with _as_file(f"{tls.key}\n{tls.certificate}") as file:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(file, password="")
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            detail = f"The client certificate and its key (PEM, without a password) cannot be used together: {reason}."
            raise BadOptions(detail) from None
    return context


def _new_context(authorities: str | None) -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    there_are = authorities or paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
    context = ssl.create_default_context(cadata=authorities, cafile=None if there_are else certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The name of a file with it, for OpenSSL, which reads keys from files alone: in memory where the system has that, else
    one that only this user may read, as long as this lasts."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("key"), "w", encoding="utf-8") as memory:
            memory.write(text)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name
