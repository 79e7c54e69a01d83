"""The secrets of a deployment, and the check that a process holds the right ones. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing.keys import PublicKeys, Secret
from forwarder.tenancy.sealing.texts import KeyPairUnsealer, PublicKeySealer


class UnknownSecret(RuntimeError):
    """This process has a secret that its deployment does not know, or lacks one that it needs."""


class SecretState(StrEnum):
    """The use of a secret."""

    ACTIVE = "active"
    """Used for sealing. One at a time."""
    ACCEPTED = "accepted"
    """Used only for opening: it was active before, or will be."""
    RETIRED = "retired"
    """No longer needed."""


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret in the deployment's database."""

    keys: PublicKeys
    state: SecretState
    created_at: datetime
    activated_at: datetime | None

    @property
    def id(self) -> str:
        return self.keys.secret_id

    @property
    def needed(self) -> bool:
        """Whether there may be content that only its holder can open."""
        return self.state is SecretState.ACTIVE or (
            self.state is SecretState.ACCEPTED and self.activated_at is not None
        )


def active_of(known: Collection[KnownSecret]) -> KnownSecret | None:
    """The active secret; None on a new database."""
    return next((each for each in known if each.state is SecretState.ACTIVE), None)


def check_secrets(held: Sequence[Secret], known: Sequence[KnownSecret]) -> None:
    """Raises `UnknownSecret` unless each of `held` is known, and each needed one is held. The message names both."""
    active = active_of(known)
    used = "none yet: run `forwarder migrate`" if active is None else active.id
    by_id = {each.id: each for each in known}
    for secret in held:
        if secret.id not in by_id:
            raise UnknownSecret(
                f"The secret {secret.id} is unknown to this deployment, which uses {used}. Was it mistyped, or is this another "
                "deployment's database? To add a new secret, keep the known one in FORWARDER_EARLIER_SECRET_KEYS and run "
                "`forwarder secret add`."
            )
        # A database that has another key under this secret's id is not ours.
        by_id[secret.id].keys.require_trusted({secret.verify_key})
    missing = [each.id for each in known if each.needed and each.id not in {secret.id for secret in held}]
    if missing:
        raise UnknownSecret(
            f"The secret {missing[0]} is missing: this deployment has sealed to it. Given here: "
            f"{', '.join(secret.id for secret in held)}. Name it in FORWARDER_SECRET_KEY or FORWARDER_EARLIER_SECRET_KEYS, or move "
            "all that is sealed to it elsewhere: `forwarder secret reseal`, then `retire`."
        )


class Resealed(NamedTuple):
    """`moved` pieces are sealed to the active secret now; `failed` could not be opened, and stay as they are."""

    moved: int
    failed: int


class Keyring:
    """The secrets that a process holds, one of them active. `Sealer` of credentials and grants, and `Unsealer` of all texts."""

    def __init__(self, held: Sequence[Secret]) -> None:
        self.held = {secret.id: secret for secret in held}
        self._unsealer = KeyPairUnsealer(pair for each in held for pair in (each.accounts, each.webhooks))
        self.active = held[0]
        self._sealer = PublicKeySealer(self.active.accounts.public_key)

    def activate(self, secret_id: str) -> None:
        """Seals to this secret from now on; ignores one that this process does not hold."""
        if secret_id in self.held and secret_id != self.active.id:
            self.active = self.held[secret_id]
            self._sealer = PublicKeySealer(self.active.accounts.public_key)

    def seal_text(self, text: str, bound_to: str) -> str:
        return self._sealer.seal_text(text, bound_to)

    def open_text(self, sealed: str, bound_to: str) -> str:
        return self._unsealer.open_text(sealed, bound_to)

    def secret(self, secret_id: str) -> Secret:
        """Raises `CannotOpen` where it is not held."""
        found = self.held.get(secret_id)
        if found is None:
            raise CannotOpen(f"It needs the secret {secret_id}, which is not given here.")
        return found
