"""IP addresses: which are of this machine, and which belong to one client."""

from collections.abc import Hashable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_HOST_BITS: Final = 64
"""Of an IPv6 address: those that a client chooses itself."""


def is_local(host: str) -> bool:
    """A socket of this machine, or a loopback address. No name is looked up: what it means may change."""
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address; an IPv4 address within IPv6 as itself. None for what is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4096)
def client_of(address: str) -> Hashable:
    """What limits for one client count by: the IPv4 address, or the /64 of the IPv6 address. Texts that are no address are one
    client together."""
    read = read_address(address)
    return int(read) >> _HOST_BITS if isinstance(read, IPv6Address) else read
