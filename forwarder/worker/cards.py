"""Cards in the worker: resealed at intake, opened for a push, destroyed.

A card from the topic is resealed under keys of its row. They are destroyed as soon as they are not needed; the security code's key
before a push may use the code, so that it cannot be recovered afterwards. `CardVault` does that. `CardKeeper` maintains the topic's
keys: it creates those of the next days, destroys unneeded ones, and follows the active secret.

A short-lived key of the topic is destroyed in two steps. Once it has expired and a margin has passed, nothing more is sealed to it,
and the keeper notes the end offsets of the topic's partitions. Once the workers' group has committed up to these, every card sealed
to the key has been ingested. A key is kept while a row's card is still sealed to it: the worker that ingested it lacked a secret.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.observability import metrics
from forwarder.process.loops import FAULTS, Batcher, Where, contained
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import Arrival, CardKey, KeptCard, StoreUnavailable
from forwarder.tenancy.port import Account, CannotOpen, NotBound, TenancyUnavailable
from forwarder.tenancy.sealing import (
    CODE_PURPOSE,
    GONE,
    NUMBER_PURPOSE,
    UNBOUND,
    Keyring,
    RowKeys,
    WrappedKey,
    has_code,
    is_card_of,
    is_sealed_to_topic,
    of_card,
    open_from_topic,
    open_in_row,
    seal_for_row,
)

if TYPE_CHECKING:
    from forwarder.store.submissions.card_keys import CardKeys
    from forwarder.tenancy.sql.secrets import SealingKeys
    from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)

_MAX_TOGETHER: Final = 250
_PRIVATE_KEYS_KEPT: Final = 64


class CardGone(CannotOpen):
    """The card's key was destroyed: it can no longer be opened."""


class CodeGone(CannotOpen):
    """The key of its security code was destroyed, because a push may have used it."""


@dataclass(eq=False, repr=False)
class CardVault:
    """Opens, re-seals and destroys cards. Its methods raise `StoreUnavailable` and `TenancyUnavailable`."""

    keys: "CardKeys"
    sealing_keys: "SealingKeys"
    wrapper: Keyring

    def __post_init__(self) -> None:
        self.private_keys: OrderedDict[str, bytes] = OrderedDict()
        self._taken: dict[str, CardKey] = {}
        outages = (StoreUnavailable, TenancyUnavailable)
        self._takes: Batcher[str, CardKey | None] = Batcher(
            self._take, where=Where.CARD_KEYS, max_items=_MAX_TOGETHER, outages=outages
        )

    async def reseal(self, arrivals: Sequence[Arrival]) -> Mapping[str, Arrival]:
        """The arrivals not ingested before, by request id: cards resealed for the rows, or unchanged without the secret."""
        known, kept = await self.keys.known([each.submission.request_id for each in arrivals]), dict[str, Arrival]()
        for arrival in arrivals:
            submission, expires_at = arrival.submission, arrival.deadline_at
            card, request_id = submission.card, submission.request_id
            if request_id in known:
                continue
            if card is None or not is_sealed_to_topic(card):
                kept[request_id] = arrival
                continue
            try:
                sealed, key = await self._resealed(KeptCard(request_id, submission.account_id, card, expires_at))
            except CannotOpen as error:
                _log.error("card.key_missing", request_id=request_id, key_id=card.key_id, error=str(error))
                sealed, key = card, CardKey(request_id, "", "", None, expires_at, sealing_key=card.key_id)
            kept[request_id] = replace(arrival, submission=replace(submission, card=sealed), card_key=key)
        return kept

    async def reseal_kept(self) -> int:
        """Reseals cards that rows keep as they came from the topic, if this worker has their secret; returns how many."""
        resealed = 0
        for sealing_key in await self.keys.sealing_keys():
            try:
                await self._private_key(sealing_key)
            except CannotOpen:
                continue
            for kept in await self.keys.sealed_to(sealing_key, limit=_MAX_TOGETHER):
                try:
                    await self.keys.reseal(kept.request_id, *await self._resealed(kept))
                    resealed += 1
                except (StoreUnavailable, TenancyUnavailable):
                    raise
                except FAULTS as error:  # continue with the other cards
                    contained(Where.CARDS, error, request_id=kept.request_id)
        return resealed

    async def open(self, submission: Submission, account: Account) -> CardDetails:
        """The card of a row, for a push to `account`. Destroys the stored key of its security code; if the push does not use the
        code, `put_back` restores it. Raises `CardGone`, `CodeGone`, `NotBound`, and `CannotOpen` if a secret is missing."""
        card, request_id = submission.card, submission.request_id
        if card is not None and is_sealed_to_topic(card):
            # The row was ingested without a secret that its card needs.
            kept = await self.keys.kept(request_id)
            if kept is not None and is_sealed_to_topic(kept.card):
                await self.keys.reseal(request_id, *await self._resealed(kept))
                kept = await self.keys.kept(request_id)  # another worker may have been first
            card = GONE if kept is None else kept.card
        if card == UNBOUND:
            raise NotBound("The card that came with it was sealed for another submission.")
        key = None if card is None or card == GONE else await self._takes.submit(request_id)
        if card is None or key is None:
            raise CardGone("The card was destroyed; submit it again, with the card.")
        if key.code_key is not None:
            self._taken[request_id] = key
        elif has_code(card):
            raise CodeGone("The card's security code was destroyed, because an earlier push may have used it.")
        unwrap, secret, code = self.wrapper.unwrap, key.secret_id, None
        number = unwrap(WrappedKey(secret, key.number_key), f"{NUMBER_PURPOSE} {request_id}")
        if key.code_key is not None:
            code = unwrap(WrappedKey(secret, key.code_key), f"{CODE_PURPOSE} {request_id}")
        return open_in_row(card, RowKeys(number, code), of_card(request_id, account.id, account.base_url))

    async def put_back(self, request_id: str) -> None:
        """Restores the security code's key: surely it was not used."""
        key = self._taken.pop(request_id, None)
        if key is None or key.code_key is None or await self.keys.put_back(key):
            return
        purpose = f"{CODE_PURPOSE} {request_id}"
        code = self.wrapper.unwrap(WrappedKey(key.secret_id, key.code_key), purpose)
        for secret_id in self.wrapper.held:  # the row's keys were resealed to one of these meanwhile
            wrapped = self.wrapper.wrap(code, purpose, secret_id)
            await self.keys.put_back(replace(key, secret_id=secret_id, code_key=wrapped.content))

    def used(self, request_id: str) -> None:
        """The security code may have been used: forgets its key."""
        self._taken.pop(request_id, None)

    async def _resealed(self, kept: KeptCard) -> tuple[SealedCard, CardKey | None]:
        """The card under new keys of its row; or `GONE` or `UNBOUND`, without. Raises `CannotOpen` if a secret is missing."""
        card, request_id = kept.card, kept.request_id
        private_key = await self._private_key(card.key_id)
        if private_key is None:
            metrics.CARDS_GONE.inc()
            _log.error("card.key_destroyed", request_id=request_id, key_id=card.key_id)
            return GONE, None
        try:
            bound_to, opened = open_from_topic(card, private_key)
        except CannotOpen:
            bound_to, opened = "", CardDetails()
        if not is_card_of(bound_to, request_id, kept.account_id):
            _log.error("card.not_bound", request_id=request_id, account_id=kept.account_id)
            return UNBOUND, None
        sealed, keys = seal_for_row(opened, bound_to)
        number = self.wrapper.wrap(keys.number, f"{NUMBER_PURPOSE} {request_id}")
        code = None if keys.code is None else self.wrapper.wrap(keys.code, f"{CODE_PURPOSE} {request_id}").content
        return sealed, CardKey(request_id, number.secret_id, number.content, code, kept.expires_at)

    async def _private_key(self, key_id: str) -> bytes | None:
        key = self.private_keys.get(key_id) or await self.sealing_keys.private_key(key_id)
        if key is not None:
            self.private_keys[key_id] = key
            if len(self.private_keys) > _PRIVATE_KEYS_KEPT:
                self.private_keys.popitem(last=False)
        return key

    async def _take(self, request_ids: Sequence[str]) -> Sequence[CardKey | None]:
        taken = await self.keys.take(request_ids)
        return [taken.get(request_id) for request_id in request_ids]


@dataclass(frozen=True, slots=True)
class CardParts:
    """The ports to the keys of cards. `refresh` looks up which secret is active."""

    keys: "CardKeys"
    sealing_keys: "SealingKeys"
    wrapper: Keyring
    refresh: Callable[[], Awaitable[None]]


@dataclass(eq=False, repr=False)
class CardKeeper:
    """Maintains the topic's keys. Raises `StoreUnavailable`, `TenancyUnavailable`, `LogUnavailable`."""

    parts: "WorkerParts"
    vault: CardVault

    async def keep(self) -> None:
        await self.keep_once()
        await self.parts.clock.sleep(30.0)

    async def keep_once(self) -> None:
        now, cards = self.parts.clock.now(), self.parts.cards
        await cards.refresh()
        made = await cards.sealing_keys.publish(now=now)
        swept = await cards.keys.sweep(now=now)
        resealed = await self.vault.reseal_kept()
        if made or swept or resealed:
            _log.info("cards.kept", sealing_keys_made=made, card_keys_destroyed=swept, cards_resealed=resealed)
        if ended := await cards.sealing_keys.ended(now=now):
            await self._destroy(ended)
        self.vault.private_keys.clear()  # another worker may have destroyed some of them

    async def _destroy(self, ended: Mapping[str, Mapping[int, int] | None]) -> None:
        cards, topic, group = self.parts.cards, self.parts.topics.requests, self.parts.settings.group
        async with self.parts.log.admin() as admin:
            held = await admin.offsets(topic)
            unseen = [key_id for key_id, ends in ended.items() if ends is None]
            if unseen:
                await cards.sealing_keys.note_ends(unseen, {part: kept.stop for part, kept in held.items()})
            noted = {key_id: ends for key_id, ends in ended.items() if ends is not None}
            committed = await admin.committed(topic, group=group) if noted else {}
        # Messages that the topic has deleted cannot be ingested any longer.
        past = {part: max(committed.get(part, 0), kept.start) for part, kept in held.items()}
        passed = [key for key, ends in noted.items() if all(past.get(part, end) >= end for part, end in ends.items())]
        # Queried only now: every ingested card that was sealed to these has its row by this point.
        done = sorted({*passed}.difference(await cards.keys.sealing_keys())) if passed else ()
        if done:
            await cards.sealing_keys.destroy(done)
            metrics.SEALING_KEYS_DESTROYED.inc(len(done))
            _log.info("sealing_keys.destroyed", key_ids=done)
