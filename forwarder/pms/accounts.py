"""How an account's PMS is reached, and whether a push went to the same one."""

import hashlib
import re
from typing import Final

from forwarder.pms.port import UNPACED, AccountConnection, Capabilities, ClientTls, Pace
from forwarder.process.clock import iso
from forwarder.reservation.evidence import Push, Target
from forwarder.tenancy.port import Account, Unsealer
from forwarder.tenancy.sealing import of_client_key, of_credential

_OWNER: Final = re.compile(r"\s*\{.*|[^:]*", re.DOTALL)


def connection_of(account: Account, unsealer: Unsealer, pace: Pace = UNPACED) -> AccountConnection:
    """The connection settings of the account's PMS, with the credential in the clear. Raises `CannotOpen`."""
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
    """The target of a push: the PMS and what the push carries. `credential`: in the clear, or None if unknown; the target keeps
    only a hash of it under `key`, and only of the part that names the account, if it has two. Of a JSON object none does."""
    pms = hashlib.sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    owner = None if credential is None else "".join(_OWNER.findall(credential)[:1]).encode()
    who = "" if owner is None else hashlib.blake2b(owner, digest_size=8, key=key, person=b"credential").hexdigest()
    reference = can.reference_form.name if can.find_by_reference else ""
    return Target(pms, who, reference, can.idempotent_create)


def same_before(account: Account) -> str:
    """Pushes of the account before this time (ISO 8601) count as sent to its present PMS; empty for none."""
    return "" if account.same_pms_before is None else iso(account.same_pms_before)


def is_same_pms(account: Account, target: Target, push: Push) -> bool:
    """Whether `push` of `account` went to the same PMS, and to the same account there, as `target`."""
    return target.same_pms(push.to) or push.began < same_before(account)
