"""The secrets and keys that a process was given, checked against those of its deployment."""

from collections.abc import Collection, Sequence
from typing import Protocol

from forwarder.process.data_dir import secret_in
from forwarder.settings import BadSettings, Embedded, Settings
from forwarder.store.engine import Engine
from forwarder.tenancy.sealing import KeyPair, Keyring, Secret, UnknownSecret, active_of
from forwarder.tenancy.sql.secrets import SqlSecrets

_NOT_GIVEN = (
    "FORWARDER_SECRET_KEY is missing: the keys that cards and credentials are sealed to are derived from it. "
    "Set it, for migrate and every worker alike, to what `forwarder secret generate` prints."
)


class HasKeyring(Protocol):
    """A backend."""

    @property
    def keyring(self) -> Keyring | None: ...


def held_secrets(settings: Settings) -> Sequence[Secret]:
    """The secrets of this process, the current one first. An embedded forwarder creates its own and keeps it in its directory;
    other processes may have none."""
    present, earlier = settings.secrets.present, settings.secrets.earlier
    if present is None and isinstance(settings.backend, Embedded):
        present = secret_in(settings.backend.data_dir)
    if present is None:
        if earlier:
            raise BadSettings(_NOT_GIVEN)
        return ()
    return [Secret.from_text(text) for text in dict.fromkeys((present, *earlier))]


def required_secrets(settings: Settings) -> Sequence[Secret]:
    """`held_secrets`, for processes that need one. Raises `BadSettings` if there is none."""
    held = held_secrets(settings)
    if not held:
        raise BadSettings(_NOT_GIVEN)
    return held


async def open_keyring(engine: Engine, held: Sequence[Secret], *, first: bool = False) -> Keyring | None:
    """The keyring of this process; None without a secret. `first`: it may register the first secret of a new database. Raises
    `UnknownSecret`."""
    if not held:
        return None
    known = await SqlSecrets(engine).admit(held, first=first)
    keyring, active = Keyring(held), active_of(known)
    if active is not None:
        keyring.activate(active.id)
    return keyring


def required_keyring(backend: "HasKeyring") -> Keyring:
    """The keyring, for processes that need one. Raises `BadSettings` if there is none."""
    if backend.keyring is None:
        raise BadSettings(_NOT_GIVEN)
    return backend.keyring


def notifier_pairs(settings: Settings, keyring: Keyring | None) -> Sequence[KeyPair]:
    """The key pairs that open webhooks' secrets; empty if this process was given none."""
    if settings.secrets.notifier_keys:
        return [KeyPair.of(key) for key in settings.secrets.notifier_keys]
    return [] if keyring is None else [secret.webhooks for secret in keyring.held.values()]


async def require_notifier_key(engine: Engine, pairs: Sequence[KeyPair]) -> KeyPair:
    """The one of `pairs` that webhooks' secrets are sealed to now. Raises `UnknownSecret`."""
    active = active_of(await SqlSecrets(engine).known())
    present = next((pair for pair in pairs if active and pair.public_key == active.keys.webhooks_key), None)
    if present is None:
        used = "none yet" if active is None else active.id
        raise UnknownSecret(
            f"FORWARDER_NOTIFIER_KEY is not of the secret that this deployment uses: {used}. `forwarder secret status "
            "--notifier-key`, run with that secret, prints the right one."
        )
    return present


def trusted_keys(settings: Settings, keyring: Keyring | None) -> Collection[bytes]:
    """The verify keys whose signatures on public keys this process trusts. Raises `BadSettings` if there are none."""
    trusted = {secret.verify_key for secret in keyring.held.values()} if keyring else set(settings.secrets.verify_keys)
    if not trusted:
        raise BadSettings(
            "FORWARDER_SEALING_VERIFY_KEY is missing: this process has no secret, and needs it to verify that the keys in the "
            "database are yours. `forwarder secret status`, run with FORWARDER_SECRET_KEY set, prints it."
        )
    return trusted
