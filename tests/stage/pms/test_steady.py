"""An absence from a list in pages is believed only where the list did not change while it was read."""

from collections.abc import Sequence
from typing import ClassVar

import pytest
from pydantic_core import to_json

from forwarder.pms.directory import MAX_READINGS, steady
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.response import Response
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, LookupOutcome

PER_PAGE = 2


class Page(bytes):
    """Counts those that are kept."""

    alive: ClassVar[int] = 0

    def __init__(self, *_: object) -> None:
        Page.alive += 1

    def __del__(self) -> None:
        Page.alive -= 1


class Listed:
    """A list that is read by pages; what each request changes of it."""

    def __init__(self, bookings: Sequence[str], *leaving: str | None) -> None:
        self.bookings = list(bookings)
        self.leaving = list(leaving)
        self.asked = 0

    async def send(self, request: Request) -> Response:
        self.asked += 1
        first = int(request.query) * PER_PAGE
        body = {"data": self.bookings[first : first + PER_PAGE], "total": len(self.bookings), "at": f"now {self.asked}"}
        leaves = self.leaving.pop(0) if self.leaving else None
        if leaves is not None:
            self.bookings.remove(leaves)
        return Response(200, content=to_json(body))


async def look_up(send: Send) -> LookupOutcome:
    """As adapters do: page by page, until ours is seen or one is empty."""
    for page in range(10):
        response = await send(Request("GET", "https://pms.test/bookings", query=str(page)))
        if b'"ours"' in response.content:
            return Confirmed("ours")
        if b'"data":[]' in response.content:
            return Absent()
    return Deferred("pms_lists_too_much", "")


async def test_ours_that_slips_to_a_page_that_was_read_is_found_by_reading_again() -> None:
    pms = Listed(["o0", "o1", "o2", "o3", "ours"], None, "o0")
    assert await look_up(Listed(["o0", "o1", "o2", "o3", "ours"], None, "o0").send) == Absent()
    assert await steady(look_up, pms.send) == Confirmed("ours")


async def test_a_list_that_stays_is_read_twice() -> None:
    pms = Listed(["o0", "o1", "o2"])
    assert await steady(look_up, pms.send) == Absent()
    assert pms.asked == 6


async def test_a_list_that_changes_each_time_proves_nothing() -> None:
    pms = Listed([f"o{n}" for n in range(40)], *[f"o{n}" for n in range(40)])
    pms.bookings = pms.bookings[:9]
    pms.leaving = [None, "o0", None, None, None, "o1", None, None, None, "o2", None, None, None, "o3"]
    found = await steady(look_up, pms.send)
    assert isinstance(found, Absent | Deferred)
    assert pms.asked >= 2 * (MAX_READINGS - 1)


async def test_pages_are_not_kept_to_be_compared() -> None:
    """Each may have a megabyte."""
    pms, most = Listed([f"o{n}" for n in range(15)]), 0

    async def send(request: Request) -> Response:
        nonlocal most
        response = Response(200, content=Page((await pms.send(request)).content))
        most = max(most, Page.alive)
        return response

    assert await steady(look_up, send) == Absent()
    assert (pms.asked, most <= 2) == (18, True), most


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Age", "0", Absent),
        ("Age", "old", Absent),
        ("Age", "1", Deferred),
        ("Age", "600", Deferred),
        ("Age", "0, 5", Deferred),
        ("X-Cache", "MISS from proxy", Absent),
        ("X-Cache", "Hit from cloudfront", Deferred),
        ("X-Cache", "TCP_MEM_HIT", Deferred),
        ("X-Cache-Status", "STALE", Deferred),
        ("CF-Cache-Status", "DYNAMIC", Absent),
    ],
)
async def test_what_a_cache_shows_may_be_from_before_the_create(name: str, text: str, found: type) -> None:
    async def one(send: Send) -> LookupOutcome:
        await send(Request("GET", "https://pms.test/bookings"))
        return Absent()

    async def cached(_: Request) -> Response:
        return Response(200, [(name.encode(), text.encode())], b'{"data":[]}')

    assert isinstance(await steady(one, cached), found)


@pytest.mark.parametrize("bookings", [[], ["o0"]])
async def test_one_page_is_as_it_was_at_one_moment(bookings: list[str]) -> None:
    async def one(send: Send) -> LookupOutcome:
        await send(Request("GET", "https://pms.test/bookings", query="0"))
        return Absent()

    pms = Listed(bookings)
    assert await steady(one, pms.send) == Absent()
    assert pms.asked == 1
