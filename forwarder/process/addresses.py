"""Which addresses are of this machine."""

from ipaddress import ip_address


def is_local(host: str) -> bool:
    """A socket of this machine, or a loopback address. No name is looked up: what it means may change."""
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
