"""Keys wrapped by the deployment's secret. The port is shaped like that of a key management service, which could implement it: the
wrapping key never leaves it, and a key wrapped for one purpose does not unwrap for another."""

import base64
import binascii
from typing import NamedTuple, Protocol

from nacl.exceptions import CryptoError
from nacl.secret import Aead

from forwarder.tenancy.port import NotBound
from forwarder.tenancy.sealing.registry import Keyring


class WrappedKey(NamedTuple):
    """A key that only the holder of the secret `secret_id` can use. `content` is text."""

    secret_id: str
    content: str


class KeyWrapper(Protocol):
    """Wraps keys with the active secret, and unwraps them with whichever they were wrapped with."""

    def wrap(self, key: bytes, purpose: str) -> WrappedKey: ...

    def unwrap(self, wrapped: WrappedKey, purpose: str) -> bytes:
        """The key. Raises `CannotOpen` without that secret, `NotBound` where it was wrapped for something else or is damaged."""
        ...


class SecretWrapper:
    """`KeyWrapper` with secrets from the environment or from files."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def wrap(self, key: bytes, purpose: str) -> WrappedKey:
        active = self._keyring.active
        content = Aead(active.wrapping_key).encrypt(key, purpose.encode())
        return WrappedKey(active.id, base64.b64encode(content).decode("ascii"))

    def unwrap(self, wrapped: WrappedKey, purpose: str) -> bytes:
        secret = self._keyring.secret(wrapped.secret_id)
        try:
            content = base64.b64decode(wrapped.content, validate=True)
            return Aead(secret.wrapping_key).decrypt(content, purpose.encode())
        except (CryptoError, binascii.Error, ValueError):
            raise NotBound(f"A key was wrapped for another purpose than {purpose!r}, or is damaged.") from None
