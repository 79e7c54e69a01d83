"""From a host's name to its addresses, and which targets may be posted to. Asks the machine's resolver."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from forwarder.webhooks.addresses import AddressRule
from forwarder.webhooks.port import BadTarget

LONGEST_URL: Final = 2000
_PORTS: Final = {"http": 80, "https": 443}
_LIMIT_SECONDS: Final = 5.0

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host, best first. Raises `OSError` where there are none."""


class Resolver:
    """`Resolve` as the machine knows names, within 5 s.

    Each name that is being looked up has a thread of its own, whoever waits for it: a shared pool would fill up with names whose
    servers are silent, and hold up all the others.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses. Raises `OSError`."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        answer = self._under_way.get((host, port)) or self._begin(host, port)
        async with asyncio.timeout(_LIMIT_SECONDS):
            return await asyncio.shield(answer)

    def _begin(self, host: str, port: int) -> asyncio.Future[Sequence[str]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()
        self._under_way[host, port] = answer
        answer.add_done_callback(partial(self._end, host, port))

        def look_up() -> None:
            outcome = _looked_up(host, port)
            with suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits
                loop.call_soon_threadsafe(_tell, answer, outcome)

        threading.Thread(target=look_up, name="resolve", daemon=True).start()
        return answer

    def _end(self, host: str, port: int, answer: asyncio.Future[Sequence[str]]) -> None:
        del self._under_way[host, port]
        if not answer.cancelled():
            answer.exception()  # looked at, so that asyncio does not report it where nobody waits any more


def _looked_up(host: str, port: int) -> Sequence[str] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:  # a label that is too long, or empty
        return OSError("not a host's name")
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _tell(answer: asyncio.Future[Sequence[str]], outcome: Sequence[str] | OSError) -> None:
    if isinstance(outcome, OSError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class ResolvedTargets:
    """`Targets` by a rule for addresses."""

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
    """The address, taken apart. Raises `BadTarget`."""
    if len(url) > LONGEST_URL:
        raise BadTarget("too_long", f"An address has at most {LONGEST_URL} characters.")
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
