"""The keys derived from a secret, one per purpose and independent of each other, and their signed public halves. No I/O."""

from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Self

from nacl.exceptions import BadSignatureError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey
from pydantic_core import to_json

_ID_BYTES: Final = 8
_SEED_BYTES: Final = 32

# BLAKE2b's personalisation keeps keys of one secret apart: 16 bytes at the most.
_SIGNING: Final = b"forwarder-sign-1"
_ACCOUNTS: Final = b"forwarder-acct-1"
_WEBHOOKS: Final = b"forwarder-hook-1"
_WRAPPING: Final = b"forwarder-wrap-1"


class NotTrusted(ValueError):
    """Public keys that no trusted secret signed: whoever put them into the store could open content sealed to them."""


def key_id_of(public_key: bytes) -> str:
    """16 hexadecimal characters that name a public key."""
    return blake2b(public_key, digest_size=_ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An X25519 key to seal and to open with. `key_id` is a hash of its public half."""

    key_id: str
    public_key: bytes
    private_key: bytes = field(repr=False)

    @classmethod
    def of(cls, private_key: bytes) -> Self:
        """The pair with this private half of 32 bytes."""
        public = bytes(PrivateKey(private_key).public_key)
        return cls(key_id_of(public), public, private_key)

    @classmethod
    def new(cls) -> Self:
        """A random one."""
        return cls.of(bytes(PrivateKey.generate()))


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public part of a secret. `secret_id` is a hash of its verify key, so that a mistyped secret is detected."""

    secret_id: str
    verify_key: bytes
    accounts_key: bytes
    webhooks_key: bytes
    signature: bytes

    def require_trusted(self, trusted: Collection[bytes]) -> None:
        """Raise `NotTrusted` unless these are what the holder of a secret with one of the `trusted` verify keys signed."""
        if self.verify_key not in trusted or key_id_of(self.verify_key) != self.secret_id:
            raise NotTrusted(
                f"The keys of the secret {self.secret_id} in the database are not signed by one that is trusted here."
            )
        require_signed(self.verify_key, _signed(self.accounts_key, self.webhooks_key), self.signature)


@dataclass(frozen=True, slots=True)
class Secret:
    """A deployment's secret as the keys that are derived from it: always the same ones, and as hard to guess as it is."""

    id: str
    verify_key: bytes
    accounts: KeyPair
    webhooks: KeyPair
    wrapping_key: bytes = field(repr=False)
    _signing_key: bytes = field(repr=False)

    @classmethod
    def from_text(cls, secret: str) -> Self:
        seed = _derived(secret, _SIGNING)
        verify_key = bytes(SigningKey(seed).verify_key)
        return cls(
            key_id_of(verify_key),
            verify_key,
            KeyPair.of(_derived(secret, _ACCOUNTS)),
            KeyPair.of(_derived(secret, _WEBHOOKS)),
            _derived(secret, _WRAPPING),
            seed,
        )

    def sign(self, content: bytes) -> bytes:
        """An Ed25519 signature."""
        return SigningKey(self._signing_key).sign(content).signature

    def public_keys(self) -> PublicKeys:
        content = _signed(self.accounts.public_key, self.webhooks.public_key)
        keys = (self.accounts.public_key, self.webhooks.public_key)
        return PublicKeys(self.id, self.verify_key, *keys, self.sign(content))


def require_signed(verify_key: bytes, content: bytes, signature: bytes) -> None:
    """Raise `NotTrusted` unless the holder of the verify key's secret signed `content`."""
    try:
        VerifyKey(verify_key).verify(content, signature)
    except (BadSignatureError, ValueError):
        raise NotTrusted(f"A key in the database is not signed by the secret {key_id_of(verify_key)}.") from None


def _signed(accounts_key: bytes, webhooks_key: bytes) -> bytes:
    return to_json(["public-keys", accounts_key.hex(), webhooks_key.hex()])


def _derived(secret: str, purpose: bytes) -> bytes:
    return blake2b(secret.encode(), digest_size=_SEED_BYTES, person=purpose).digest()
