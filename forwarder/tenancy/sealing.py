"""Sealed boxes (X25519, XSalsa20-Poly1305): anyone with the public key can seal, only the holder of the secret can open. No I/O."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from pydantic import ValidationError

from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.tenancy.port import CannotOpen

_PURPOSE = b"forwarder-seal-1"
"""Separates this key from anything else derived from the same secret."""

_KEY_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key to seal and to open with. `key_id` is a hash of its public half."""

    key_id: str
    public_key: bytes
    private_key: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: str) -> Self:
        """The key pair of a deployment's secret: always the same one, and as hard to guess as the secret."""
        private = PrivateKey(blake2b(secret.encode(), digest_size=PrivateKey.SIZE, person=_PURPOSE).digest())
        public = bytes(private.public_key)
        return cls(blake2b(public, digest_size=_KEY_ID_BYTES).hexdigest(), public, bytes(private))


class PublicKeySealer:
    """`Sealer` with a public key."""

    def __init__(self, key_id: str, public_key: bytes) -> None:
        self.key_id = key_id
        self._box = SealedBox(PublicKey(public_key))

    def seal_card(self, card: CardDetails) -> SealedCard:
        return SealedCard(self.key_id, _base64(self._box.encrypt(card.model_dump_json(by_alias=True).encode())))

    def seal_text(self, text: str) -> str:
        # The key's id comes first: it says which key opens it, after keys have changed.
        return _base64(bytes.fromhex(self.key_id) + self._box.encrypt(text.encode()))


def sealer_of(secret: str) -> PublicKeySealer:
    """A sealer for the holder of `secret`."""
    pair = KeyPair.from_secret(secret)
    return PublicKeySealer(pair.key_id, pair.public_key)


class SecretUnsealer:
    """`Unsealer` with the keys of several secrets: the present one, and earlier ones."""

    def __init__(self, secrets: Sequence[str]) -> None:
        pairs = [KeyPair.from_secret(secret) for secret in secrets]
        self._boxes = {pair.key_id: SealedBox(PrivateKey(pair.private_key)) for pair in pairs}

    def open_card(self, card: SealedCard) -> CardDetails:
        opened = self._open(card.key_id, _bytes(card.sealed))
        try:
            return CardDetails.model_validate_json(opened)
        except ValidationError:
            # Without its cause, which would quote the card.
            raise CannotOpen("What was sealed is not a card.") from None

    def open_text(self, sealed: str) -> str:
        content = _bytes(sealed)
        opened = self._open(content[:_KEY_ID_BYTES].hex(), content[_KEY_ID_BYTES:])
        try:
            return opened.decode()
        except UnicodeDecodeError:
            raise CannotOpen("What was sealed is not a text.") from None

    def _open(self, key_id: str, sealed: bytes) -> bytes:
        box = self._boxes.get(key_id)
        if box is None:
            raise CannotOpen(
                f"Sealed with the key {key_id!r}, which no FORWARDER_SECRET_KEY given here is the secret of."
            )
        try:
            return box.decrypt(sealed)
        except (CryptoError, ValueError) as error:
            raise CannotOpen(f"Sealed with the key {key_id!r}, and damaged since.") from error


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CannotOpen("Not a sealed text: it is no base64.") from error
