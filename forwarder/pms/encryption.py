"""Whether what is sent to an account's PMS is encrypted, as far as its addresses say. Pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from forwarder.process.addresses import is_local


def is_encrypted(base_url: str, options: Mapping[str, Any]) -> bool:
    """Whether the base URL, and every address among the options, is https or of this machine."""
    addresses = [base_url, *(value for value in options.values() if isinstance(value, str))]
    return not any(_is_plain(address) for address in addresses)


def _is_plain(address: str) -> bool:
    if not address.lower().startswith("http://"):
        return False
    try:
        return not is_local(urlsplit(address).hostname or "")
    except ValueError:
        return True
