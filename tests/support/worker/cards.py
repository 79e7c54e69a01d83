"""Cards in the suites: one key pair that is always valid, and the keys of rows in memory or in a database."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import CardKey, KeptCard
from forwarder.tenancy.sealing import CardSealer, KeyPair, Keyring, SealingKey, Secret, of_card, open_from_topic
from forwarder.tenancy.sql.secrets import SealingKeys
from forwarder.worker.cards import CardParts, CardVault

_SECRET: Final = Secret.from_text("a secret of the cards of these tests alone")
_ALWAYS: Final = (datetime(1970, 1, 1, tzinfo=UTC), datetime(8999, 1, 1, tzinfo=UTC))


class OneSealingKey(SealingKeys):
    """`SealingKeys` of one that is always valid, and what seals to it."""

    def __init__(self) -> None:
        self.pair = KeyPair.new()
        self.destroyed = False
        self.sealer = CardSealer([SealingKey.signed_by(_SECRET, self.pair, *_ALWAYS)])

    def sealed(self, card: CardDetails, request_id: str, account_id: str, base_url: str) -> SealedCard:
        """As an ingress seals it."""
        sealed = self.sealer.seal_card(card, of_card(request_id, account_id, base_url), datetime.now(UTC))
        assert sealed is not None
        return sealed

    def opened(self, submission: Submission) -> CardDetails:
        assert submission.card is not None
        return open_from_topic(submission.card, self.pair.private_key)[1]

    async def publish(self, *, now: datetime) -> int:
        return 0

    async def private_key(self, key_id: str) -> bytes | None:
        return self.pair.private_key if key_id == self.pair.key_id and not self.destroyed else None

    async def ended(self, *, now: datetime) -> Mapping[str, Mapping[int, int] | None]:
        return {}

    async def note_ends(self, key_ids: Collection[str], ends: Mapping[int, int]) -> None:
        raise AssertionError("it never ends")

    async def destroy(self, key_ids: Collection[str]) -> None:
        self.destroyed = True


class MemoryCardKeys(CardKeys):
    """Knows no rows: what is put into `held` is there."""

    def __init__(self) -> None:
        self.held: dict[str, CardKey] = {}

    async def known(self, request_ids: Collection[str]) -> Collection[str]:
        return ()

    async def take(self, request_ids: Collection[str]) -> Mapping[str, CardKey]:
        return {each: self.held[each] for each in request_ids if each in self.held}

    async def put_back(self, key: CardKey) -> bool:
        self.held[key.request_id] = key
        return True

    async def destroy(self, request_ids: Collection[str]) -> None:
        for each in request_ids:
            self.held.pop(each, None)

    async def sealing_keys(self) -> Collection[str]:
        return ()

    async def sealed_to(self, sealing_key: str, *, limit: int) -> Sequence[KeptCard]:
        return ()

    async def kept(self, request_id: str) -> KeptCard | None:
        return None

    async def reseal(self, request_id: str, card: SealedCard, key: CardKey | None) -> None:
        raise AssertionError("it knows no rows")

    async def sweep(self, *, now: datetime) -> int:
        return 0


def card_parts(keys: CardKeys | AsyncEngine | None = None, sealing_keys: OneSealingKey | None = None) -> CardParts:
    """A worker's. `keys`: where rows' keys are; by default in memory."""

    async def refresh() -> None:
        """The one secret stays."""

    kept = CardKeys(keys) if isinstance(keys, AsyncEngine) else keys or MemoryCardKeys()
    return CardParts(kept, sealing_keys or OneSealingKey(), Keyring([_SECRET]), refresh)


def memory_vault(keys: MemoryCardKeys | None = None) -> CardVault:
    """One that has seen no card, or those of `keys`."""
    parts = card_parts(keys)
    return CardVault(parts.keys, parts.sealing_keys, parts.wrapper)
