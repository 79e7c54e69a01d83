"""IP addresses: which are of this machine, and which belong to one client."""

from collections.abc import Hashable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address


def is_local(host: str) -> bool:
    """Whether `host` is a socket of this machine or a loopback address. Resolves no name: its meaning may change."""
    address = read_address(host)
    return host == "localhost" or host.startswith("/") or (address is not None and address.is_loopback)


@lru_cache(maxsize=4096)
def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """The address; an IPv4 address within IPv6 as itself. None if `text` is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4096)
def client_of(address: str) -> Hashable:
    """The unit that per-client limits count: an IPv4 address, or the /64 of an IPv6 address. All other texts are one client."""
    read = read_address(address)
    return int(read) >> 64 if isinstance(read, IPv6Address) else read
