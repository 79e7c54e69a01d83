"""Which addresses of the network may be posted to. Pure.

A customer chooses where results go, and the forwarder posts from inside its operator's network: without a rule, a customer could
have it speak to what only that network reaches (https://owasp.org/www-community/attacks/Server_Side_Request_Forgery).
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Public addresses by https, always. `private`: any address, by http too. `loopback`: this machine's own, by http too."""

    private: bool = False
    loopback: bool = False

    def allows(self, scheme: str, address: str) -> bool:
        """Whether that IP address may be connected to."""
        if self.private:
            return True
        meant = _meant(address)
        return (self.loopback and meant.is_loopback) or (scheme == "https" and _is_public(meant))

    def may_allow(self, scheme: str) -> bool:
        """Whether there is any address at all that may be connected to so."""
        return scheme == "https" or (scheme == "http" and (self.private or self.loopback))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not address.is_reserved and not local


def _meant(address: str) -> IPv4Address | IPv6Address:
    """The address itself, or the IPv4 address that an IPv6 one carries: whoever routes it may lead there."""
    # What follows "%" names a network interface of this machine.
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv4Address):
        return parsed
    if parsed in _NAT64:
        return IPv4Address(int(parsed) & _IPV4_BITS)
    inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo and parsed.teredo[1])
    return inner or parsed
