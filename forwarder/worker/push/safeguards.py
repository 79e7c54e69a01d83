"""What keeps an ambiguous push from being made twice: what it carried that its PMS can be asked about. Pure.

An account's options may change between a push and the next look at it, and so may what its kind of PMS can do. So what an
earlier push carried is recorded with its row; what today's settings could do says nothing of it.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from forwarder.pms.port import Capabilities


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What a push carried: `key`, an idempotency key that the PMS honours; `reference`, our reference, by which it can be found.
    `endpoint` tells which PMS it went to: another one can be asked nothing about it."""

    endpoint: str = ""
    key: bool = False
    reference: bool = False

    def __bool__(self) -> bool:
        return self.key or self.reference

    def __str__(self) -> str:
        """As the store keeps it; empty for none."""
        names = (name for name, carried in (("key", self.key), ("reference", self.reference)) if carried)
        return " ".join((self.endpoint, *names)) if self else ""

    def common_with(self, other: "Safeguards") -> "Safeguards":
        """What both have: of two pushes what either may be asked about, of a push and of today's settings what is of use now."""
        if self.endpoint != other.endpoint:
            return NONE
        return Safeguards(self.endpoint, self.key and other.key, self.reference and other.reference)


NONE = Safeguards()
"""Nothing can be asked: it may be sent once, and what became of it only a person can tell."""


def safeguards_of(kind: str, base_url: str, can: Capabilities) -> Safeguards:
    """What a push to such a PMS carries."""
    endpoint = hashlib.sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    return Safeguards(endpoint, can.idempotent_create, can.find_by_reference)


@lru_cache(maxsize=1024)
def read_safeguards(written: str) -> Safeguards:
    """What `str` of safeguards gave. What cannot be read is none: nothing is trusted that nobody is sure of."""
    endpoint, *names = written.split(" ")
    if not names or not set(names) <= {"key", "reference"}:
        return NONE
    return Safeguards(endpoint, "key" in names, "reference" in names)
