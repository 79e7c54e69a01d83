"""Seals and opens what tests keep sealed."""

from forwarder.tenancy.sealing import Keyring, Secret


def keyring_of(*secrets: str) -> Keyring:
    """For the holder of whole secrets: the present one, and earlier ones."""
    return Keyring([Secret.from_text(secret) for secret in secrets])
