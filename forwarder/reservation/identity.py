"""Request identifiers: unique, sortable by time, derived from the idempotency key where there is one, and vouched for.

An identifier is `rsv_` and 32 characters of base32: 14 bytes that name the submission and a 6-byte MAC (BLAKE2b, RFC 7693)
that binds them to one integration account. Whoever holds the MAC key can tell, without asking any store, whether this service
ever issued an identifier to that account: so the status of an accepted submission is never "unknown".
"""

import base64
import binascii
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from hmac import compare_digest

_PREFIX = "rsv_"
_NAME_BYTES = 14
_MAC_BYTES = 6


@dataclass(frozen=True, slots=True)
class RequestIds:
    """Issues and recognises request identifiers. `mac_key` (16 to 64 bytes) is the same in every process of a deployment."""

    mac_key: bytes = field(repr=False)

    def issue(self, account_id: str, now: datetime) -> str:
        """A new identifier for `account_id`; later ones sort after earlier ones, to the millisecond."""
        milliseconds = int(now.timestamp() * 1000)
        return self._seal(account_id, milliseconds.to_bytes(6, "big") + secrets.token_bytes(_NAME_BYTES - 6))

    def derive(self, account_id: str, idempotency_key: str) -> str:
        """The identifier of this key in this account: the same for ever, and of no other account's key."""
        name = self._mac(b"idempotency", _NAME_BYTES, account_id, idempotency_key.encode())
        return self._seal(account_id, name)

    def vouches(self, account_id: str, request_id: str) -> bool:
        """True when `request_id` was issued to, or derived for, `account_id` under this key."""
        try:
            raw = base64.b32decode(request_id.removeprefix(_PREFIX).upper())
        except (binascii.Error, ValueError):
            return False
        # Only the one spelling that was issued: a name has one address.
        return compare_digest(self._seal(account_id, raw[:_NAME_BYTES]).encode(), request_id.encode())

    def _seal(self, account_id: str, name: bytes) -> str:
        sealed = name + self._mac(b"request-id", _MAC_BYTES, account_id, name)
        return _PREFIX + base64.b32encode(sealed).decode("ascii").lower()

    def _mac(self, purpose: bytes, size: int, account_id: str, content: bytes) -> bytes:
        account = account_id.encode()
        # The length in front keeps account "a" with content "bc" apart from account "ab" with content "c".
        message = len(account).to_bytes(4, "big") + account + content
        return blake2b(message, digest_size=size, key=self.mac_key, person=purpose).digest()
