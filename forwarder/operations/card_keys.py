"""The keys of rows' cards, as `Sealed` has it: how many are wrapped by which secret, and wrapping them by another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from forwarder.store.submissions.work import CardKey
from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing.cards import CODE_PURPOSE, NUMBER_PURPOSE
from forwarder.tenancy.sealing.registry import Keyring, Resealed
from forwarder.tenancy.sealing.wrapping import SecretWrapper, WrappedKey

_NAME: Final = "cards"


class WrappedCardKeys(Protocol):
    """Those that are kept. Raises `StoreUnavailable`."""

    async def counts(self) -> Counter[str]: ...

    async def of_other_secrets(self, secret_id: str) -> Sequence[CardKey]: ...

    async def rewrap(self, old: CardKey, new: CardKey) -> bool: ...


class SealedCardKeys:
    """`Sealed`."""

    def __init__(self, keys: WrappedCardKeys) -> None:
        self._keys = keys

    async def counts(self) -> Mapping[str, Counter[str]]:
        return {_NAME: await self._keys.counts()}

    async def reseal(self, keyring: Keyring) -> Mapping[str, Resealed]:
        wrapper, moved, failed = SecretWrapper(keyring), 0, 0
        for old in await self._keys.of_other_secrets(keyring.active.id):
            try:
                new = _rewrapped(wrapper, old)
            except CannotOpen:
                failed += 1
                continue
            moved += await self._keys.rewrap(old, new)
        return {_NAME: Resealed(moved, failed)}


def _rewrapped(wrapper: SecretWrapper, old: CardKey) -> CardKey:
    request_id = old.request_id
    purposes = ((old.number_key, f"{NUMBER_PURPOSE} {request_id}"), (old.code_key, f"{CODE_PURPOSE} {request_id}"))
    number, code = (
        None if text is None else wrapper.wrap(wrapper.unwrap(WrappedKey(old.secret_id, text), purpose), purpose)
        for text, purpose in purposes
    )
    assert number is not None  # noqa: S101 - every card has one
    return CardKey(request_id, number.secret_id, number.content, code and code.content, old.expires_at)
