"""The keys of rows' cards, in SQL: a table of its own, so that a backup can leave it out. Destroying a key is deleting it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from pydantic_core import to_json
from sqlalchemy import ColumnElement, delete, exists, func, or_, select, union_all, update

from forwarder.reservation.request import SealedCard
from forwarder.store.batches import BATCH, batch_of, key_batch
from forwarder.store.database import OnDatabase
from forwarder.store.submissions.port import CardKey, KeptCard
from forwarder.store.submissions.rows import card_in, card_row
from forwarder.store.tables import IN_DOUBT, PENDING, card_keys, duplicates, reservations

_row = card_keys.c
_OWN = _row.sealing_key.is_(None)
_named = select(batch_of(_row.request_id).c.request_id)
_IN_BATCH = _row.request_id.in_(_named)


class CardKeys(OnDatabase):
    """Every method is one transaction and raises `StoreUnavailable`. Destroyed keys cannot be recovered."""

    async def known(self, request_ids: Collection[str]) -> Collection[str]:
        """The submissions among these that were ingested, also as duplicates: their cards are not needed again."""
        names = (reservations.c.request_id, duplicates.c.request_id)
        both = union_all(*(select(each).where(each.in_(_named)) for each in names))
        return {row[0] for row in await self._database.read(both, {BATCH: key_batch("request_id", request_ids)})}

    async def take(self, request_ids: Collection[str]) -> Mapping[str, CardKey]:
        """The existing keys. Destroys the stored keys of security codes, so that only the caller has them."""
        batch = {BATCH: key_batch("request_id", request_ids)}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(card_keys).where(_IN_BATCH), batch)).all()
            if any(row.code_key is not None for row in rows):
                await connection.execute(update(card_keys).where(_IN_BATCH).values(code_key=None), batch)
        return {row.request_id: CardKey(*tuple(row)) for row in rows}

    async def put_back(self, key: CardKey) -> bool:
        """The security code's, which surely was not used. False unless the rest is still there, wrapped by the same secret."""
        back = update(card_keys).where(_row.request_id == key.request_id, _row.secret_id == key.secret_id)
        return bool(await self._database.run(back.values(code_key=key.code_key).returning(_row.request_id)))

    async def destroy(self, request_ids: Collection[str]) -> None:
        if request_ids:
            await self._database.run(delete(card_keys).where(_IN_BATCH), {BATCH: key_batch("request_id", request_ids)})

    async def counts(self) -> Counter[str]:
        counted = select(_row.secret_id, func.count().label("cards")).where(_OWN).group_by(_row.secret_id)
        return Counter({row.secret_id: row.cards for row in await self._database.read(counted)})

    async def of_other_secrets(self, secret_id: str) -> Sequence[CardKey]:
        rows = await self._database.read(select(card_keys).where(_OWN, _row.secret_id != secret_id))
        return [CardKey(*tuple(row)) for row in rows]

    async def rewrap(self, old: CardKey, new: CardKey) -> bool:
        """Replace `old`, if it is unchanged. A code's key that was taken meanwhile stays gone."""
        same = (_row.request_id == old.request_id, _row.number_key == old.number_key)
        unchanged = update(card_keys).where(*same, _row.code_key.is_not_distinct_from(old.code_key))
        values = {"secret_id": new.secret_id, "number_key": new.number_key, "code_key": new.code_key}
        return bool(await self._database.run(unchanged.values(values).returning(_row.request_id)))

    async def sealing_keys(self) -> Collection[str]:
        """The ids of the topic's keys that cards of rows are still sealed to."""
        return [row[0] for row in await self._database.read(select(_row.sealing_key).where(~_OWN).distinct())]

    async def sealed_to(self, sealing_key: str, *, limit: int) -> Sequence[KeptCard]:
        return await self._kept(_row.sealing_key == sealing_key, limit)

    async def kept(self, request_id: str) -> KeptCard | None:
        """A row's card as it is now; None where its keys were destroyed."""
        return next(iter(await self._kept(_row.request_id == request_id, 1)), None)

    async def _kept(self, condition: ColumnElement[bool], limit: int) -> Sequence[KeptCard]:
        columns = (_row.request_id, _row.expires_at, reservations.c.account_id, reservations.c.card)
        joined = select(*columns).join(reservations, reservations.c.request_id == _row.request_id)
        rows = await self._database.read(joined.where(condition, reservations.c.card.is_not(None)).limit(limit))
        found = ((row, card_in(row.card)) for row in rows)
        return [KeptCard(row.request_id, row.account_id, card, row.expires_at) for row, card in found if card]

    async def reseal(self, request_id: str, card: SealedCard, key: CardKey | None) -> None:
        """Replaces a row's card that is still sealed to a key of the topic by `card` and its own keys, None if it needs none. Does
        nothing if the row has its own keys already, or has ended."""
        waiting = (_row.request_id == request_id, ~_OWN)
        change = delete(card_keys) if key is None else update(card_keys).values(asdict(key))
        # A row that has ended meanwhile gets no card back.
        kept = update(reservations).where(reservations.c.request_id == request_id, reservations.c.card.is_not(None))
        async with self._database.transaction() as connection:
            if (await connection.execute(change.where(*waiting).returning(_row.request_id))).all():
                await connection.execute(kept.values(card=to_json(card_row(card)).decode()))

    async def sweep(self, *, now: datetime) -> int:
        """Destroys what has expired, or has no open row; returns how many there were."""
        is_open = (reservations.c.request_id == _row.request_id, reservations.c.status.in_([PENDING, IN_DOUBT]))
        useless = delete(card_keys).where(or_(_row.expires_at <= now, ~exists().where(*is_open)))
        return len(await self._database.run(useless.returning(_row.request_id)))
