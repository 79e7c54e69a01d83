"""Which network addresses may be posted to, and resolving host names to them.

Customers choose the target URLs, and the forwarder posts from inside its operator's network: without a rule, a customer could make
it post to internal services (https://owasp.org/www-community/attacks/Server_Side_Request_Forgery)."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from forwarder.webhooks.port import BadTarget

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_TRANSLATED: Final = (_NAT64, IPv6Network("::ffff:0:0/96"), IPv6Network("2002::/16"), IPv6Network("2001::/32"))
"""IPv6 addresses that embed an IPv4 address."""
_INNER_IPV4: Final = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
"""Not public, though `is_global` says so: protocols' own, 6to4 relays, the platform's address inside Azure."""
_INNER_IPV6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
MAX_LOOK_UPS: Final = 32  # resolver threads, for each of the two kinds of names
MAX_URL: Final = 2000
PORTS: Final = {"http": 80, "https": 443}
_LIMIT_SECONDS: Final = 5.0
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host, best first. Raises `OSError` where there are none."""


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Public addresses by https, always. `private`: any address, also by http. `loopback`: also this machine, also by http."""

    private: bool = False
    loopback: bool = False

    def allows(self, scheme: str, address: str) -> bool:
        if self.private:
            return True
        parsed = written_address(address)
        return (self.loopback and parsed.is_loopback) or (scheme == "https" and _is_public(parsed))

    def may_allow(self, scheme: str) -> bool:
        return scheme == "https" or (scheme == "http" and (self.private or self.loopback))


def written_address(host: str) -> IPv4Address | IPv6Address:
    """The address that `host` is in any form that a resolver takes: 127.1, 0x7f000001. Raises `ValueError` for a name."""
    # After "%" comes the name of a network interface.
    host = host.partition("%")[0].removesuffix(".")
    try:
        return ip_address(host)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            raise ValueError("not an address") from None


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address and every IPv4 address that it embeds are public: a router may deliver to the embedded one."""
    if isinstance(address, IPv4Address):
        inner = address.is_multicast or address.is_reserved or _is_in(address, _INNER_IPV4)
        return address.is_global and not inner
    outer = address in _GLOBAL_UNICAST and address.is_global and not _is_in(address, _INNER_IPV6)
    return (outer or _is_in(address, _TRANSLATED)) and all(map(_is_public, _embedded(address)))


def _is_in(address: IPv4Address | IPv6Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)


def _embedded(address: IPv6Address) -> Sequence[IPv4Address]:
    """IPv4-mapped, NAT64 (RFC 6052), 6to4, Teredo (its server and its client), ISATAP in any network (RFC 5214)."""
    # ISATAP's identifier of an interface, without the bit that says whether it is unique in the world.
    is_isatap = int(address) >> 32 & 0xFDFF_FFFF == 0x5EFE  # noqa: PLR2004 - as the RFC writes it
    if address.ipv4_mapped or address in _NAT64 or is_isatap:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return address.teredo or ((address.sixtofour,) if address.sixtofour else ())


class Resolver:
    """`Resolve` with the machine's resolver, within 5 s; one look-up of a name at a time, shared by all who wait for it. A name
    whose servers do not answer occupies a thread for long. So names that resolved the last time have threads of their own."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Task[Sequence[str]]] = {}
        self._known: dict[str, None] = {}  # in the order of their last look-up
        self._threads = {known: asyncio.Semaphore(MAX_LOOK_UPS) for known in (False, True)}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        with suppress(ValueError):
            return [str(ip_address(host))]
        if host not in self._pending:

            def end(addresses: asyncio.Task[Sequence[str]]) -> None:
                del self._pending[host]
                if not addresses.cancelled():
                    addresses.exception()  # retrieved, so that asyncio does not report it if no caller is left

            self._pending[host] = asyncio.create_task(self._find(host, port))
            self._pending[host].add_done_callback(end)
        async with asyncio.timeout(_LIMIT_SECONDS):
            return await asyncio.shield(self._pending[host])

    async def _find(self, host: str, port: int) -> Sequence[str]:
        threads, found = self._threads[host in self._known], Future[Sequence[str]]()

        def look_up() -> None:
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
            except OSError as error:
                found.set_exception(error)
            except ValueError:  # a label is too long, or empty; a character that no name has
                found.set_exception(OSError("not a host name"))

        async with asyncio.timeout(_LIMIT_SECONDS):
            await threads.acquire()
        try:
            found.set_running_or_notify_cancel()  # else the thread's result might come to one that was cancelled
            # A daemon, unlike an executor's thread: a look-up that hangs does not keep the process from exiting.
            threading.Thread(target=look_up, name="resolve", daemon=True).start()
            result = await asyncio.wrap_future(found)
        finally:
            threads.release()
            self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > 10_000:  # noqa: PLR2004 - bounds the memory
            del self._known[next(iter(self._known))]
        return result


class ResolvedTargets:
    """Which URLs may be posted to, by an `AddressRule`. Without `resolves`, for deliveries through a proxy that resolves names
    itself, it checks only hosts that are written as addresses."""

    def __init__(self, rule: AddressRule, find: Resolve | None = None, *, resolves: bool = True) -> None:
        self._rule, self._find, self._resolves = rule, find or Resolver(), resolves

    async def check(self, url: str) -> None:
        """Raises `BadTarget` if it may not be posted to now, or does not resolve. Each connection is checked again."""
        parts = _parsed(url)
        needs_https = BadTarget("https_needed", "The address must begin with https://.")
        if not self._rule.may_allow(parts.scheme):
            raise needs_https
        host = parts.hostname or ""
        if not self._resolves:
            try:
                host = str(written_address(host))
            except ValueError:
                return
        try:
            addresses = await self._find(host, parts.port or PORTS[parts.scheme])
        except OSError:
            addresses = ()
        if self._rule.private or any(self._rule.allows(parts.scheme, address) for address in addresses):
            return
        if any(self._rule.allows("https", address) for address in addresses):
            raise needs_https
        # The same answer for internal and for unknown names; otherwise it would reveal which names exist inside.
        raise BadTarget("address_not_public", f"{host} does not resolve to an address of the public internet now.")


def _parsed(url: str) -> SplitResult:
    if len(url) > MAX_URL:
        raise BadTarget("too_long", f"An address has at most {MAX_URL} characters.")
    bad = BadTarget("not_a_url", "The address must be an absolute URL, such as https://host/path, in printable ASCII.")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        raise bad from None
    if not usable or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise bad
    if parts.username is not None or parts.password is not None:
        raise BadTarget("credentials_in_url", "The address must hold no user name or password: deliveries are signed.")
    return parts
