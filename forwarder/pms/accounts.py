"""What an account's settings and its kind say of its PMS, without loading an adapter, which an ingress never does: the connection,
the target of a push, what may be sent unencrypted, and what a kind requires of a reservation.

Built-in kinds are those that a YAML page in `forwarder.pms.kinds` describes, named like the kind, and those in code.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from hashlib import blake2b, sha256
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from forwarder.pms.port import UNPACED, AccountConnection, Capabilities, ClientTls, Pace
from forwarder.process.addresses import is_local
from forwarder.process.clock import iso
from forwarder.reservation.booking import Traits
from forwarder.reservation.evidence import Target
from forwarder.tenancy.port import Account, Unsealer
from forwarder.tenancy.sealing import of_client_key, of_credential


def connection_of(account: Account, unsealer: Unsealer, pace: Pace = UNPACED) -> AccountConnection:
    """The connection settings of the account's PMS, with the credential in the clear. Raises `CannotOpen`."""
    sealed = account.client_key
    key = None if sealed is None else unsealer.open_text(sealed, of_client_key(account.id))
    credential = unsealer.open_text(account.credential, of_credential(account))
    tls = ClientTls(account.authorities, account.client_certificate, key)
    return AccountConnection(account.id, account.kind, account.base_url, credential, pace, account.options, tls=tls)


def target_of(kind: str, base_url: str, credential: str | None, can: Capabilities, key: bytes = b"") -> Target:
    """The target of a push: the PMS and what the push carries. `credential`: in the clear, or None if unknown; the target keeps
    only a hash of it under `key`, and only of the part that names the account, if it has two (a JSON object has not)."""
    pms = sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    whole = credential is None or credential.lstrip().startswith("{")
    owner = credential if credential is None or whole else credential.partition(":")[0]
    who = "" if owner is None else blake2b(owner.encode(), digest_size=8, key=key, person=b"credential").hexdigest()
    return Target(pms, who, can.reference_form.name if can.find_by_reference else "", can.idempotent_create)


def same_before(account: Account) -> str:
    """Pushes of the account before this time (ISO 8601) count as sent to its present PMS; empty for none."""
    return "" if account.same_pms_before is None else iso(account.same_pms_before)


class Plaintext(IntEnum):
    """What may go to PMSs on other machines by plain http."""

    NOTHING = 0
    ALL_BUT_CARDS = 1
    EVERYTHING = 2


def is_encrypted(base_url: str, options: Mapping[str, Any]) -> bool:
    """Whether the base URL, and every address among the options, is https or of this machine."""
    addresses = [base_url, *(value for value in options.values() if isinstance(value, str))]
    plain = [address for address in addresses if address.lower().startswith("http://")]
    try:
        return all(is_local(urlsplit(address).hostname or "") for address in plain)
    except ValueError:
        return False


# --- built-in kinds ---

_PLACE: Final = files("forwarder.pms").joinpath("kinds")

PAGES: Final = frozenset(page.name.removesuffix(".yaml") for page in _PLACE.iterdir() if page.name.endswith(".yaml"))
CODED: Final = {
    "booking-sync": (
        "forwarder.pms.kinds.booking_sync.adapter:BookingSyncAdapter",
        Traits(rooms=False, cards="payment"),
    ),
    "generic": ("forwarder.pms.kinds.generic:GENERIC", Traits()),
    "website-builder": ("forwarder.pms.kinds.generic:WebsiteBuilderAdapter", Traits(website=True)),
}
"""The kinds in code: where each is, and what it requires."""


def page_text(kind: str) -> str:
    return _PLACE.joinpath(f"{kind}.yaml").read_text(encoding="utf-8")


@cache
def traits_of(kind: str) -> Traits:
    """The rules of that kind for reservations. None for a kind of another distribution: its adapter refuses invalid ones."""
    if kind not in PAGES:
        return CODED[kind][1] if kind in CODED else Traits()
    page = yaml.load(page_text(kind), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one
    return Traits(rooms=page.get("rooms", True), cards=page.get("cards", "all"))
