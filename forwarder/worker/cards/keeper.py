"""Maintains the keys of cards: creates those of the next days, destroys unneeded ones, and follows the active secret.

A short-lived key is destroyed in two steps. Once it has expired and a margin has passed, nothing more is sealed to it, and the
keeper notes the end offsets of the topic's partitions. Once the workers' group has committed up to these, every card sealed to the
key has been ingested. A key is kept longer while a row's card is still sealed to it, because the worker that ingested it lacked a
secret, until a worker has resealed the card.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from forwarder.observability import metrics
from forwarder.process.clock import Clock
from forwarder.store.submissions.port import CardKeys
from forwarder.tenancy.port import SealingKeys
from forwarder.tenancy.sealing import KeyWrapper
from forwarder.topics.port import Log
from forwarder.worker.cards.vault import CardVault

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class CardParts:
    """The ports to the keys of cards. `refresh` looks up which secret is active."""

    keys: CardKeys
    sealing_keys: SealingKeys
    wrapper: KeyWrapper
    refresh: Callable[[], Awaitable[None]]


class CardKeeper:
    """One round is `keep`. Raises `StoreUnavailable`, `TenancyUnavailable`, `LogUnavailable`."""

    def __init__(self, parts: CardParts, vault: CardVault, log: Log, topic: str, group: str, clock: Clock) -> None:
        self._parts = parts
        self._vault = vault
        self._log = log
        self._topic = topic
        self._group = group
        self._clock = clock

    async def keep(self) -> None:
        """A round, and then a pause."""
        await self.keep_once()
        await self._clock.sleep(_PAUSE_SECONDS)

    async def keep_once(self) -> None:
        now = self._clock.now()
        await self._parts.refresh()
        made = await self._parts.sealing_keys.publish(now=now)
        swept = await self._parts.keys.sweep(now=now)
        resealed = await self._vault.reseal_kept()
        if made or swept or resealed:
            _log.info("cards.kept", sealing_keys_made=made, card_keys_destroyed=swept, cards_resealed=resealed)
        ended = await self._parts.sealing_keys.ended(now=now)
        if ended:
            await self._destroy(ended)
        # Another worker may have destroyed some of them.
        self._vault.forget_private_keys()

    async def _destroy(self, ended: Mapping[str, Mapping[int, int] | None]) -> None:
        async with self._log.admin() as admin:
            held = await admin.offsets(self._topic)
            unseen = [key_id for key_id, ends in ended.items() if ends is None]
            if unseen:
                await self._parts.sealing_keys.note_ends(unseen, {part: kept.stop for part, kept in held.items()})
            noted = {key_id: ends for key_id, ends in ended.items() if ends is not None}
            committed = await admin.committed(self._topic, group=self._group) if noted else {}
        # Messages that the topic has deleted cannot be ingested any longer.
        past = {part: max(committed.get(part, 0), kept.start) for part, kept in held.items()}
        passed = [
            key_id for key_id, ends in noted.items() if all(past.get(part, end) >= end for part, end in ends.items())
        ]
        # Queried only now: every ingested card that was sealed to these has its row by this point.
        done = sorted({*passed}.difference(await self._parts.keys.sealing_keys())) if passed else ()
        if done:
            await self._parts.sealing_keys.destroy(done)
            metrics.SEALING_KEYS_DESTROYED.inc(len(done))
            _log.info("sealing_keys.destroyed", key_ids=done)
