"""Whether what is sent to an account's PMS is encrypted, as far as its addresses say, and what may be sent if it is not. Pure."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self
from urllib.parse import urlsplit

from forwarder.process.addresses import is_local


class Plaintext(IntEnum):
    """What may go to PMSs on other machines by plain http."""

    NOTHING = 0
    ALL_BUT_CARDS = 1
    EVERYTHING = 2

    @classmethod
    def allowed(cls, *, pms: bool, cards: bool) -> Self:
        """By `FORWARDER_ALLOW_PLAINTEXT_PMS` and `FORWARDER_ALLOW_PLAINTEXT_CARDS`, which allows no less."""
        return cls(2 if cards else 1 if pms else 0)


def is_encrypted(base_url: str, options: Mapping[str, Any]) -> bool:
    """Whether the base URL, and every address among the options, is https or of this machine."""
    addresses = [base_url, *(value for value in options.values() if isinstance(value, str))]
    for address in addresses:
        if address.lower().startswith("http://"):
            try:
                if not is_local(urlsplit(address).hostname or ""):
                    return False
            except ValueError:
                return False
    return True
