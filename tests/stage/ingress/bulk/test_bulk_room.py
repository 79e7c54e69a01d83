"""What is held for the response of a bulk, before anything is accepted, is enough for whatever its items come to."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forwarder.ingress.message import IngressSettings
from forwarder.process.shares import Shares
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import MAX_SIMILAR
from forwarder.store.lists.port import SimilarSubmission
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, changed
from tests.support.stages.http_stages import BULK_PATH, Stages, stages

Body = dict[str, Any]
UNPAID: Final = changed(BOOKING_ENGINE, "transactionId", ABSENT)
FULL: Final = {**BOOKING_ENGINE, "cardDetails": CARD, "transactionId": "full"}
LONGEST_KEY: Final = '"\\' * 127


def _item(reservation: Body, key: str | None = None) -> Body:
    keyed = {} if key is None else {"idempotencyKey": key}
    return {"operation": "booking-engine", "reservation": reservation, **keyed}


SENT_BEFORE: Final = [_item(changed(BOOKING_ENGINE, "propertyId", number)) for number in (3001, 3002)]
ALIKE: Final = [
    _item(changed(changed(UNPAID, "propertyId", 2002), "notes", f"Room {number}")) for number in range(MAX_SIMILAR + 4)
]

ITEMS: Final[Mapping[str, Callable[[int], Any]]] = {
    "new": lambda number: _item(changed(UNPAID, "propertyId", f"new-{number}")),
    "new, with every field and the longest key": lambda number: _item(FULL, f"{LONGEST_KEY}{number % 10}"),
    "no item": lambda number: number,
    "faulty": lambda _number: _item({name: [] for name in BOOKING_ENGINE}),
    "with unknown fields": lambda number: _item({**UNPAID, **{f"ünknown-{number}-{each}": 1 for each in range(50)}}),
    "sent before": lambda _number: SENT_BEFORE[0],
    "sent before, changed": lambda number: _item({**SENT_BEFORE[1]["reservation"], "notes": f"{number}"}),
    "similar to many": lambda number: _item(changed(changed(UNPAID, "propertyId", 2002), "notes", f"more {number}")),
    "another body under its key": lambda number: _item(changed(UNPAID, "notes", f"{number}"), "used"),
    "refused, with a key": lambda number: _item(changed(UNPAID, "arrivalDate", "2020-01-01"), f"late-{number}"),
    "too large for the log": lambda number: _item(changed(UNPAID, "notes", f"{number}" * 2_000)),
}


@asynccontextmanager
async def prepared(room: int, public_url: str, *, refuses: bool) -> AsyncIterator[Stages]:
    """With what some of `ITEMS` came after, and so many bytes for unread responses."""
    async with stages(IngressSettings(public_url=public_url)) as house:
        account = replace(house.directory.accounts["alpha-1"], duplicate_window_seconds=300)
        house.directory.accounts = {"alpha-1": replace(account, similar="refuse" if refuses else "allow")}
        house.log.max_bytes = 4_000
        keyed = [{**each, "idempotencyKey": f"alike-{number}"} for number, each in enumerate(ALIKE)]
        before = [*SENT_BEFORE, _item(UNPAID, "used"), *keyed]
        assert (await send(house, before)).json()["data"]["accepted"] == len(before)
        for message in house.requests[: len(SENT_BEFORE)]:
            house.ingest(message)
        if refuses:
            other = json.dumps(_otherwise(FULL)).encode()
            similar = SimilarSubmission("rsv_" + "a" * 32, Status.PENDING, house.clock.now(), other)
            house.reader.similar_ones = [similar]
        house.admission.responses = Shares(room)
        yield house


def _otherwise(value: Any) -> Any:
    """The same with another value in every field."""
    return {name: _otherwise(each) for name, each in value.items()} if isinstance(value, dict) else f"{value} else"


async def send(house: Stages, items: Sequence[Any]) -> httpx.Response:
    return await house.client.post(BULK_PATH, json=items)


async def test_these_items_come_to_all_that_an_item_can_come_to() -> None:
    for refuses in (False, True):
        async with prepared(100_000_000, "", refuses=refuses) as house:
            told = await send(house, [make(number) for number, make in enumerate(ITEMS.values())])
        found = dict(zip(ITEMS, told.json()["data"]["results"], strict=True))
        codes = {each.get("problem", {}).get("code") for each in found.values()}
        codes.update(warning["code"] for each in found.values() for warning in each.get("warnings", ()))
        assert codes >= {
            None,
            "invalid_item",
            "validation_failed",
            "idempotency_key_reused",
            "unknown_field",
            "sent_again",
        }
        assert codes >= {"similar_submission"} | (set() if refuses else {"body_too_large"})
        similar = found["similar to many"]
        assert len(similar["problem"]["differing"] if refuses else similar["similarTo"]) >= MAX_SIMILAR


@settings(deadline=None, max_examples=30)
@example(drawn=[*ITEMS], public_url="", refuses=False)
@example(drawn=[*ITEMS], public_url="", refuses=True)
@example(drawn=["no item"] * 101, public_url="", refuses=False)
@given(
    drawn=st.lists(st.sampled_from([*ITEMS]), min_size=1, max_size=12),
    public_url=st.sampled_from(["", f"https://{'bookings.' * 20}example"]),
    refuses=st.booleans(),
)
def test_a_response_is_never_larger_than_what_was_held_for_it(
    drawn: list[str], public_url: str, *, refuses: bool
) -> None:
    """Where so much cannot be held, the bulk is refused before anything is accepted."""
    items = [ITEMS[name](number) for number, name in enumerate(drawn)]

    async def compare() -> None:
        async with prepared(100_000_000, public_url, refuses=refuses) as house:
            told = await send(house, items)
            assert told.status_code == 200, told.text
        async with prepared(len(told.content) - 1, public_url, refuses=refuses) as house:
            before = len(house.requests)
            refused = await send(house, items)
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert len(house.requests) == before

    asyncio.run(compare())
