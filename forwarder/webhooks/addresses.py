"""Which network addresses may be posted to, and resolving host names to them.

A customer chooses where results go, and the forwarder posts from inside its operator's network: without a rule, a customer could
have it post to what only that network can reach (https://owasp.org/www-community/attacks/Server_Side_Request_Forgery).
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from forwarder.webhooks.port import BadTarget

_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_BITS: Final = 0xFFFFFFFF
MAX_URL: Final = 2000
_PORTS: Final = {"http": 80, "https": 443}
_LIMIT_SECONDS: Final = 5.0

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host, best first. Raises `OSError` where there are none."""


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Public addresses by https, always. `private`: any address, also by http. `loopback`: also this machine, also by http."""

    private: bool = False
    loopback: bool = False

    def allows(self, scheme: str, address: str) -> bool:
        """Whether that IP address may be connected to."""
        if self.private:
            return True
        effective = _effective(address)
        return (self.loopback and effective.is_loopback) or (scheme == "https" and _is_public(effective))

    def may_allow(self, scheme: str) -> bool:
        """Whether there is any address that may be connected to by `scheme`."""
        return scheme == "https" or (scheme == "http" and (self.private or self.loopback))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not address.is_reserved and not local


def _effective(address: str) -> IPv4Address | IPv6Address:
    """The address itself, or the IPv4 address embedded in an IPv6 one: a router may deliver there."""
    # After "%" comes the name of a network interface.
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv4Address):
        return parsed
    if parsed in _NAT64:
        return IPv4Address(int(parsed) & _IPV4_BITS)
    inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo and parsed.teredo[1])
    return inner or parsed


class Resolver:
    """`Resolve` with the machine's resolver, within 5 s.

    Each look-up has a thread of its own, shared by all who wait for that name: a thread pool would fill up with names whose servers
    do not answer, and delay all the others.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses. Raises `OSError`."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        addresses = self._pending.get((host, port)) or self._start(host, port)
        async with asyncio.timeout(_LIMIT_SECONDS):
            return await asyncio.shield(addresses)

    def _start(self, host: str, port: int) -> asyncio.Future[Sequence[str]]:
        loop = asyncio.get_running_loop()
        addresses: asyncio.Future[Sequence[str]] = loop.create_future()
        self._pending[host, port] = addresses
        addresses.add_done_callback(partial(self._end, host, port))

        def look_up() -> None:
            result = _look_up(host, port)
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(_resolve_future, addresses, result)

        threading.Thread(target=look_up, name="resolve", daemon=True).start()
        return addresses

    def _end(self, host: str, port: int, addresses: asyncio.Future[Sequence[str]]) -> None:
        del self._pending[host, port]
        if not addresses.cancelled():
            addresses.exception()  # retrieved, so that asyncio does not report it if nobody waits any more


def _look_up(host: str, port: int) -> Sequence[str] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:  # a label is too long, or empty
        return OSError("not a host name")
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _resolve_future(addresses: asyncio.Future[Sequence[str]], result: Sequence[str] | OSError) -> None:
    if isinstance(result, OSError):
        addresses.set_exception(result)
    else:
        addresses.set_result(result)


class ResolvedTargets:
    """`Targets` by an `AddressRule`."""

    def __init__(self, rule: AddressRule, find: Resolve | None = None) -> None:
        self._rule = rule
        self._find = find or Resolver()

    async def check(self, url: str) -> None:
        parts = _parsed(url)
        if not self._rule.may_allow(parts.scheme):
            raise BadTarget("https_needed", "The address must begin with https://.")
        host = parts.hostname or ""
        try:
            addresses = await self._find(host, parts.port or _PORTS[parts.scheme])
        except OSError:
            return
        if any(self._rule.allows(parts.scheme, address) for address in addresses):
            return
        if any(self._rule.allows("https", address) for address in addresses):
            raise BadTarget("https_needed", "The address must begin with https://.")
        raise BadTarget("address_not_public", f"{host} does not lead to an address of the public internet.")


def _parsed(url: str) -> SplitResult:
    """The parts of the URL. Raises `BadTarget`."""
    if len(url) > MAX_URL:
        raise BadTarget("too_long", f"An address has at most {MAX_URL} characters.")
    wrong = BadTarget("not_a_url", "The address must be a whole one: https://host/path, in printable ASCII characters.")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise wrong
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise wrong from None
    if not usable or parts.fragment:
        raise wrong
    if parts.username is not None or parts.password is not None:
        raise BadTarget("credentials_in_url", "The address must hold no user name or password: deliveries are signed.")
    return parts
