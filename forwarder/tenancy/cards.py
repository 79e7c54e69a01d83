"""Cards, sealed twice. On the topic: to a short-lived key pair (sealed box), whose private half is destroyed once every card sealed
to it has been ingested. In a row: under random keys of the row (XChaCha20-Poly1305), one for the security code and one for the
rest, which are destroyed when they are no longer needed. Both authenticate the card's binding. Pure."""

import base64
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.secret import Aead
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from forwarder.process.clock import iso
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.tenancy.port import CannotOpen, NotBound
from forwarder.tenancy.sealing import KeyPair, NotTrusted, Secret, require_signed

_IN_ROW: Final = "row"  # the key id of a card that is sealed under its row's own keys
NUMBER_PURPOSE: Final = "card-number"
CODE_PURPOSE: Final = "card-code"
"""The purposes that a row's keys are wrapped for; the request id is appended."""
GONE: Final = SealedCard("gone", "")  # replaces a card whose key was destroyed
UNBOUND: Final = SealedCard("unbound", "")  # replaces a card that was sealed for another submission


@dataclass(frozen=True, slots=True)
class SealingKey:
    """The public half of a short-lived key pair, signed. It is sealed to from `not_before` until `not_after`."""

    key_id: str
    public_key: bytes
    not_before: datetime
    not_after: datetime
    verify_key: bytes
    signature: bytes

    @classmethod
    def signed_by(cls, secret: Secret, pair: KeyPair, not_before: datetime, not_after: datetime) -> "SealingKey":
        content = _signed(pair.public_key, not_before, not_after)
        return cls(pair.key_id, pair.public_key, not_before, not_after, secret.verify_key, secret.sign(content))

    def require_trusted(self, trusted: Collection[bytes]) -> None:
        """Raise `NotTrusted` unless a secret with one of the `trusted` verify keys signed it."""
        if self.verify_key not in trusted:
            raise NotTrusted(f"The key {self.key_id} in the database is not signed by a secret that is trusted here.")
        require_signed(self.verify_key, _signed(self.public_key, self.not_before, self.not_after), self.signature)


class CardSealer:
    """Seals to whichever of the keys in use is valid at the moment."""

    def __init__(self, keys: Iterable[SealingKey] = ()) -> None:
        self.use(keys)

    def use(self, keys: Iterable[SealingKey]) -> None:
        in_order = sorted(keys, key=lambda key: key.not_before)
        self._keys = [(key, SealedBox(PublicKey(key.public_key))) for key in in_order]

    def seal_card(self, card: CardDetails, bound_to: str, now: datetime) -> SealedCard | None:
        """The sealed card, bound to `bound_to` (see `sealing.binding`); None if no key is valid at `now`."""
        for key, box in self._keys:
            if key.not_before <= now < key.not_after:
                content = to_json([bound_to, card.model_dump(by_alias=True)])
                return SealedCard(key.key_id, _base64(box.encrypt(content)))
        return None


def open_from_topic(card: SealedCard, private_key: bytes) -> tuple[str, CardDetails]:
    """The binding and the card. Raises `CannotOpen`."""
    try:
        opened = SealedBox(PrivateKey(private_key)).decrypt(base64.b64decode(card.sealed, validate=True))
        bound_to, content = from_json(opened)
        return str(bound_to), CardDetails.model_validate(content)
    except (CryptoError, ValidationError, ValueError, TypeError):
        # Without its cause, which could quote the card.
        raise CannotOpen(f"Sealed to the key {card.key_id!r}, and damaged since.") from None


def is_sealed_to_topic(card: SealedCard) -> bool:
    """Whether it is still sealed to a key of the topic."""
    return card.key_id != _IN_ROW and card not in (GONE, UNBOUND)


class RowKeys(NamedTuple):
    """The keys of a row's card: of its security code, None if it has none or the key was destroyed, and of the rest."""

    number: bytes
    code: bytes | None


def seal_for_row(card: CardDetails, bound_to: str) -> tuple[SealedCard, RowKeys]:
    """The card under new keys."""
    keys, code = RowKeys(secrets.token_bytes(Aead.KEY_SIZE), None), ""
    if card.cvv is not None:
        keys = keys._replace(code=(code_key := secrets.token_bytes(Aead.KEY_SIZE)))
        code = _base64(Aead(code_key).encrypt(card.cvv.encode(), bound_to.encode()))
    rest = card.model_dump_json(by_alias=True, exclude={"cvv"}).encode()
    return SealedCard(_IN_ROW, f"{_base64(Aead(keys.number).encrypt(rest, bound_to.encode()))}.{code}"), keys


def has_code(card: SealedCard) -> bool:
    """Whether the card of a row came with a security code."""
    return card.key_id == _IN_ROW and not card.sealed.endswith(".")


def open_in_row(card: SealedCard, keys: RowKeys, bound_to: str) -> CardDetails:
    """The card, with its security code if there is still a key for it. Raises `NotBound` where it was moved or changed."""
    number, _, code = card.sealed.partition(".")
    try:
        rest = from_json(Aead(keys.number).decrypt(base64.b64decode(number, validate=True), bound_to.encode()))
        if keys.code is not None and code:
            rest["cvv"] = Aead(keys.code).decrypt(base64.b64decode(code, validate=True), bound_to.encode()).decode()
        return CardDetails.model_validate(rest)
    except (CryptoError, ValidationError, ValueError, TypeError):
        raise NotBound("The card was sealed for another submission, account or PMS, or changed since.") from None


def _signed(public_key: bytes, not_before: datetime, not_after: datetime) -> bytes:
    return to_json(["sealing-key", public_key.hex(), iso(not_before), iso(not_after)])


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
