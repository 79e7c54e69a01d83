"""Rotating the deployment's secrets: add a secret, make it active, reseal everything to it, and retire the earlier one once
nothing needs it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from forwarder.store.submissions.port import CardKey
from forwarder.tenancy.cards import CODE_PURPOSE, NUMBER_PURPOSE
from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing import (
    Keyring,
    KeyWrapper,
    KnownSecret,
    PublicKeys,
    Resealed,
    Secret,
    SecretState,
    UnknownSecret,
    WrappedKey,
    active_of,
    check_secrets,
    key_id_of,
)

_CARDS: Final = "cards"


class StillNeeded(RuntimeError):
    """The secret still seals something. The message says what, with the remedy."""


class Registry(Protocol):
    """The secrets that the deployment knows."""

    async def known(self) -> Sequence[KnownSecret]: ...
    async def add(self, secret: Secret) -> bool: ...
    async def activate(self, secret_id: str) -> None: ...
    async def retire(self, secret_id: str) -> None: ...


class Sealed(Protocol):
    """Sealed values: counts them by name and key id, and reseals them to the keyring's active secret. Resealing runs alongside the
    stages, and can be repeated."""

    async def counts(self) -> Mapping[str, Counter[str]]: ...
    async def reseal(self, keyring: Keyring) -> Mapping[str, Resealed]: ...


@dataclass(frozen=True, slots=True)
class SecretStatus:
    """A secret, whether this process has it, and how much is sealed to it."""

    known: KnownSecret
    held: bool
    sealed: Mapping[str, int]


class Secrets:
    """Secret operations. `held`: this process's secrets, the current one first. Every method may raise `TenancyUnavailable`, and
    `UnknownSecret` if `held` does not match the deployment's registry."""

    def __init__(self, registry: Registry, sealed: Sequence[Sealed], held: Sequence[Secret]) -> None:
        self._registry = registry
        self._sealed = sealed
        self._held = held

    async def status(self) -> Sequence[SecretStatus]:
        counts: dict[str, Counter[str]] = {}
        for each in self._sealed:
            counts |= await each.counts()
        held = {secret.id for secret in self._held}
        return [
            SecretStatus(known, known.id in held, _sealed_to(known.keys, counts))
            for known in await self._registry.known()
        ]

    async def add(self) -> bool:
        """Registers the current secret, vouched for by another registered one in `held`. False if it was registered."""
        new, others = self._held[0], self._held[1:]
        known = await self._registry.known()
        if new.id in {each.id for each in known}:
            return False
        if not others:
            raise UnknownSecret(
                "FORWARDER_EARLIER_SECRET_KEYS is missing: a new secret is added by who also has the one that is in use."
            )
        check_secrets(others, known)
        return await self._registry.add(new)

    async def rotate(self) -> str | None:
        """Makes the current secret active; returns the id of the previous one, None if it was active already."""
        known = await self._registry.known()
        check_secrets(self._held, known)
        active, wanted = active_of(known), self._held[0].id
        if active is not None and active.id == wanted:
            return None
        await self._registry.activate(wanted)
        return None if active is None else active.id

    async def reseal(self) -> Mapping[str, Resealed]:
        """Reseals everything that other secrets seal to the active one."""
        known = await self._registry.known()
        check_secrets(self._held, known)
        keyring, active = Keyring(self._held), active_of(known)
        if active is not None:
            keyring.activate(active.id)
        done: dict[str, Resealed] = {}
        for each in self._sealed:
            done |= await each.reseal(keyring)
        return done

    async def retire(self, secret_id: str) -> None:
        """Retires the secret. Raises `StillNeeded`, `NotKnown`."""
        for each in await self.status():
            if each.known.id != secret_id:
                continue
            if each.known.state is SecretState.ACTIVE:
                raise StillNeeded(
                    f"The secret {secret_id} is the active one: activate another first, `forwarder secret rotate`."
                )
            needs = ", ".join(f"{count} {name}" for name, count in each.sealed.items() if count)
            if needs:
                raise StillNeeded(
                    f"Still sealed to the secret {secret_id}: {needs}. `forwarder secret reseal` moves them."
                )
        await self._registry.retire(secret_id)


def _sealed_to(keys: PublicKeys, counts: Mapping[str, Counter[str]]) -> dict[str, int]:
    ids = (keys.secret_id, key_id_of(keys.accounts_key), key_id_of(keys.webhooks_key))
    return {name: sum(found[key_id] for key_id in ids) for name, found in counts.items()}


class WrappedCardKeys(Protocol):
    """The stored keys of rows' cards. Raises `StoreUnavailable`."""

    async def counts(self) -> Counter[str]: ...

    async def of_other_secrets(self, secret_id: str) -> Sequence[CardKey]: ...

    async def rewrap(self, old: CardKey, new: CardKey) -> bool: ...


class SealedCardKeys:
    """Implements `Sealed` for the keys of rows' cards."""

    def __init__(self, keys: WrappedCardKeys) -> None:
        self._keys = keys

    async def counts(self) -> Mapping[str, Counter[str]]:
        return {_CARDS: await self._keys.counts()}

    async def reseal(self, keyring: Keyring) -> Mapping[str, Resealed]:
        wrapper, moved, failed = KeyWrapper(keyring), 0, 0
        for old in await self._keys.of_other_secrets(keyring.active.id):
            try:
                new = _rewrapped(wrapper, old)
            except CannotOpen:
                failed += 1
                continue
            moved += await self._keys.rewrap(old, new)
        return {_CARDS: Resealed(moved, failed)}


def _rewrapped(wrapper: KeyWrapper, old: CardKey) -> CardKey:
    request_id = old.request_id
    purposes = ((old.number_key, f"{NUMBER_PURPOSE} {request_id}"), (old.code_key, f"{CODE_PURPOSE} {request_id}"))
    number, code = (
        None if text is None else wrapper.wrap(wrapper.unwrap(WrappedKey(old.secret_id, text), purpose), purpose)
        for text, purpose in purposes
    )
    assert number is not None  # noqa: S101 - every card has one
    return CardKey(request_id, number.secret_id, number.content, code and code.content, old.expires_at)
