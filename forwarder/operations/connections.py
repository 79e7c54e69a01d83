"""How an account's PMS is reached, for those who push to it and those who probe it. Knows no adapter."""

import hashlib

from forwarder.pms.port import UNPACED, AccountConnection, Capabilities, ClientTls, Pace
from forwarder.process.clock import iso
from forwarder.reservation.evidence import Push, Target
from forwarder.tenancy.port import Account, Unsealer
from forwarder.tenancy.sealing.binding import of_client_key, of_credential


def connection_of(account: Account, unsealer: Unsealer, pace: Pace = UNPACED) -> AccountConnection:
    """Where the account's PMS is and how it lets us in, with the credential in the clear. Raises `CannotOpen`."""
    sealed = account.client_key
    key = None if sealed is None else unsealer.open_text(sealed, of_client_key(account.id))
    return AccountConnection(
        account.id,
        account.kind,
        account.base_url,
        unsealer.open_text(account.credential, of_credential(account)),
        pace,
        account.options,
        tls=ClientTls(account.authorities, account.client_certificate, key),
    )


def target_of(kind: str, base_url: str, credential: str | None, can: Capabilities, key: bytes = b"") -> Target:
    """Where a push to such a PMS goes, and what it carries. `credential`: in the clear, None for one that is not known; all that is
    kept of it is a hash under `key`, and that only of the part which names the account, where it has two."""
    pms = hashlib.sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    owner = None if credential is None else credential.partition(":")[0].encode()
    who = "" if owner is None else hashlib.blake2b(owner, digest_size=8, key=key, person=b"credential").hexdigest()
    reference = can.reference_form.name if can.find_by_reference else ""
    return Target(pms, who, reference, can.idempotent_create)


def same_before(account: Account) -> str:
    """Until when (ISO 8601) all pushes of the account count as sent to the PMS that it has now; empty for never."""
    return "" if account.same_pms_before is None else iso(account.same_pms_before)


def is_same_pms(account: Account, target: Target, push: Push) -> bool:
    """Whether `push` of `account` went to the PMS, and the account there, that is `target`."""
    return target.same_pms(push.to) or push.at < same_before(account)
