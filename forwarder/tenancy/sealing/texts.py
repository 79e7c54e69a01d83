"""Texts in sealed boxes (X25519, XSalsa20-Poly1305): anyone with the public key can seal, only the holder of the private one can
open. A sealed text is `KEYID.BASE64`; the sealed content is the binding, then the text."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from pydantic_core import from_json, to_json

from forwarder.tenancy.port import CannotOpen, NotBound
from forwarder.tenancy.sealing.keys import KeyPair, Secret, key_id_of

SEPARATOR: Final = "."


class PublicKeySealer:
    """`Sealer` with a public key."""

    def __init__(self, public_key: bytes) -> None:
        self.key_id = key_id_of(public_key)
        self._box = SealedBox(PublicKey(public_key))

    def seal_text(self, text: str, bound_to: str) -> str:
        sealed = self._box.encrypt(to_json([bound_to, text]))
        return f"{self.key_id}{SEPARATOR}{base64.b64encode(sealed).decode('ascii')}"


class KeyPairUnsealer:
    """`Unsealer` with some private keys."""

    def __init__(self, pairs: Iterable[KeyPair]) -> None:
        self._boxes = {pair.key_id: SealedBox(PrivateKey(pair.private_key)) for pair in pairs}

    def open_text(self, sealed: str, bound_to: str) -> str:
        key_id, _, content = sealed.partition(SEPARATOR)
        opened = self._open(key_id, content)
        try:
            found, text = from_json(opened)
        except (ValueError, TypeError) as error:
            raise CannotOpen("What was sealed is not a text.") from error
        if found != bound_to:
            raise NotBound(f"It was sealed for {found}, and is used for {bound_to}.")
        return str(text)

    def _open(self, key_id: str, content: str) -> bytes:
        box = self._boxes.get(key_id)
        if box is None:
            raise CannotOpen(f"Sealed with the key {key_id!r}, which none of the secrets given here makes.")
        try:
            return box.decrypt(base64.b64decode(content, validate=True))
        except (CryptoError, binascii.Error, ValueError) as error:
            raise CannotOpen(f"Sealed with the key {key_id!r}, and damaged since.") from error


class SecretUnsealer(KeyPairUnsealer):
    """For the holder of whole secrets: the present one, and earlier ones."""

    def __init__(self, secrets: Sequence[str]) -> None:
        known = [Secret.from_text(secret) for secret in secrets]
        super().__init__(pair for secret in known for pair in (secret.accounts, secret.webhooks))


def sealer_of(secret: str) -> PublicKeySealer:
    """A sealer of accounts' credentials and grants, for the holder of `secret`."""
    return PublicKeySealer(Secret.from_text(secret).accounts.public_key)
