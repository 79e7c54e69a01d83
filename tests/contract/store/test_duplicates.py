"""What is an earlier submission sent again gets no row of its own, whoever ingests it, and in however many batches it comes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import CancellationRequest, Status
from forwarder.reservation.submission import NaturalKey, Submission
from forwarder.store.lists.overview import FailedState, Overview
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import Arrival, CancellationArrival, Duplicate, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from forwarder.store.tables import duplicates, reservations
from tests.support.store.stored import DEADLINE, LATER, arrival, final, lease
from tests.support.worker.works import NOW

WINDOW = 300
INSIDE, OUTSIDE = timedelta(seconds=WINDOW - 0.001), timedelta(seconds=WINDOW)


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    assert await lease(opened, "w1")
    return opened


@pytest.fixture
def reader(engine: AsyncEngine) -> Reader:
    return Reader(engine)


def sent(
    number: int,
    *,
    key: str = "same",
    transaction: str | None = None,
    keyed: bool = False,
    at: datetime = NOW,
    same: str | None = None,
    stay: str | None = None,
    **how: Any,
) -> Arrival:
    """The `number`-th submission; all with one `same`, or, as releases before 0.2 wrote them, one `key`, ask for the same thing."""
    one = arrival(number, **how)
    natural = NaturalKey(key, transaction, WINDOW, keyed, same, stay)
    return replace(one, submission=replace(one.submission, accepted_at=at, natural=natural))


def request_id(number: int) -> str:
    return sent(number).submission.request_id


class Ingest:
    """What one ingest came to."""

    def __init__(self) -> None:
        self.works: Sequence[Work] = ()
        self.duplicates: list[Duplicate] = []
        self.conflicts: list[Submission] = []

    @property
    def new(self) -> list[str]:
        return [work.submission.request_id for work in self.works]

    @property
    def repeated(self) -> dict[str, str]:
        return {each.submission.request_id: each.duplicate_of for each in self.duplicates}


async def ingest(recorder: Recorder, *arrivals: Arrival, worker: str = "w1") -> Ingest:
    came = Ingest()
    came.works = await recorder.ingest(
        worker, arrivals, now=NOW, on_duplicate=came.duplicates.append, on_conflict=came.conflicts.append
    )
    return came


async def end(recorder: Recorder, work: Work, status: Status) -> None:
    await recorder.record("w1", [final(work, status=status)], [])


async def count(engine: AsyncEngine, table: Any = reservations) -> int:
    async with engine.connect() as connection:
        return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


async def test_what_is_sent_again_is_the_earlier_one(recorder: Recorder, reader: Reader, engine: AsyncEngine) -> None:
    assert (await ingest(recorder, sent(1))).new == [request_id(1)]
    again = await ingest(recorder, sent(2, at=NOW + INSIDE))
    assert (again.new, again.repeated) == ([], {request_id(2): request_id(1)})
    assert (await count(engine), await count(engine, duplicates)) == (1, 1)
    first, second = [await reader.submission("acc", request_id(number)) for number in (1, 2)]
    assert first is not None
    assert second == replace(first, fingerprint=sent(2).submission.fingerprint)
    both = await reader.submissions("acc", {request_id(1), request_id(2), request_id(3)})
    assert both == {request_id(1): first, request_id(2): second}
    assert await reader.submission("other", request_id(2)) is None
    found = await Overview(engine).find(request_id(2))
    assert found is not None
    assert found[0].request_id == request_id(1)
    assert len((await reader.page("acc", cursor=1, limit=10)).records) == 1
    assert await recorder.count_due(now=LATER) == 0


_STATUSES = {
    Status.PENDING: (True, True),
    Status.IN_DOUBT: (True, True),
    Status.CONFIRMED: (True, False),
    Status.REJECTED: (False, False),
    Status.FAILED: (False, False),
    Status.CANCELLED: (False, False),
}
"""Of each status of the earlier one: whether it is repeated inside and outside of the window."""


@pytest.mark.parametrize(("status", "late"), [*product(_STATUSES, (False, True))])
async def test_only_what_may_stand_is_repeated(recorder: Recorder, status: Status, late: bool) -> None:
    (first,) = (await ingest(recorder, sent(1))).works
    if status is not Status.PENDING:
        await end(recorder, first, status)
    again = await ingest(recorder, sent(2, at=NOW + (OUTSIDE if late else INSIDE)))
    assert bool(again.repeated) is _STATUSES[status][late]
    assert bool(again.new) is not _STATUSES[status][late]


@pytest.mark.parametrize("earlier", [INSIDE, OUTSIDE])
async def test_the_window_counts_either_way(recorder: Recorder, earlier: timedelta) -> None:
    (first,) = (await ingest(recorder, sent(1))).works
    await end(recorder, first, Status.CONFIRMED)
    assert bool((await ingest(recorder, sent(2, at=NOW - earlier))).repeated) is (earlier is INSIDE)


@pytest.mark.parametrize(("first", "second", "together"), [*product((False, True), repeat=3)])
async def test_two_keys_are_two_reservations(recorder: Recorder, first: bool, second: bool, together: bool) -> None:
    both = [sent(1, keyed=first), sent(2, keyed=second)]
    batches = [both] if together else [both[:1], both[1:]]
    new = [each for batch in batches for each in (await ingest(recorder, *batch)).new]
    assert len(new) == (2 if first and second else 1)


@pytest.mark.parametrize("together", [False, True])
async def test_a_key_that_repeated_one_without_is_that_ones_key(recorder: Recorder, together: bool) -> None:
    sending = [sent(1), sent(2, keyed=True), sent(3, keyed=True), sent(4)]
    batches = [sending] if together else [[each] for each in sending]
    new = [each for batch in batches for each in (await ingest(recorder, *batch)).new]
    assert new == [request_id(1), request_id(3)]


@pytest.mark.parametrize("status", [Status.PENDING, Status.CONFIRMED])
async def test_a_transaction_is_the_same_at_any_time(recorder: Recorder, status: Status) -> None:
    (first,) = (await ingest(recorder, sent(1, transaction="tx"))).works
    if status is not Status.PENDING:
        await end(recorder, first, status)
    again = await ingest(recorder, sent(2, transaction="tx", at=NOW + timedelta(days=400)))
    assert again.repeated == {request_id(2): request_id(1)}


async def test_what_the_log_delivers_again_stays_what_it_was(
    recorder: Recorder, reader: Reader, engine: AsyncEngine
) -> None:
    (first,) = (await ingest(recorder, sent(1), sent(2))).works
    await end(recorder, first, Status.REJECTED)
    again = await ingest(recorder, sent(2), sent(1))
    assert (again.new, again.repeated) == ([], {request_id(2): request_id(1)})
    shown = await reader.submission("acc", request_id(2))
    assert shown is not None
    assert (shown.request_id, shown.status) == (request_id(1), Status.REJECTED)
    assert (await count(engine), await count(engine, duplicates)) == (1, 1)
    assert (await ingest(recorder, sent(3))).new == [request_id(3)]


async def test_many_of_one_batch_are_one(recorder: Recorder, engine: AsyncEngine) -> None:
    came = await ingest(recorder, *(sent(number) for number in range(1, 501)))
    assert came.new == [request_id(1)]
    assert set(came.repeated.values()) == {request_id(1)}
    assert (await count(engine), await count(engine, duplicates)) == (1, 499)


async def test_one_account_is_not_the_other(recorder: Recorder) -> None:
    """Their natural keys differ: the account is in them. What has none repeats nothing."""
    came = await ingest(
        recorder, sent(1, key="of acc"), sent(2, key="of other", account="other"), arrival(3), arrival(4)
    )
    assert len(came.new) == 4


async def test_workers_who_ingest_the_same_at_once_book_once(engine: AsyncEngine) -> None:
    recorders = [Recorder(engine) for _ in range(4)]
    for number, each in enumerate(recorders):
        await lease(each, f"w{number}")
    for lap in range(10):
        came = await asyncio.gather(
            *(
                ingest(each, sent(10 * lap + number, key=f"lap {lap}"), worker=f"w{number}")
                for number, each in enumerate(recorders, 1)
                if number < len(recorders)
            ),
            # And one of them is delivered to two workers.
            ingest(recorders[0], sent(10 * lap + 1, key=f"lap {lap}"), worker="w0"),
        )
        assert sum(len(each.new) for each in came) == 1
    assert await count(engine) == 10


async def test_a_replay_in_whose_place_another_was_sent_is_refused(
    recorder: Recorder, reader: Reader, engine: AsyncEngine
) -> None:
    (first,) = (await ingest(recorder, sent(1))).works
    await end(recorder, first, Status.FAILED)
    (second,) = (await ingest(recorder, sent(2))).works
    (another,) = (await ingest(recorder, sent(3, key="another"))).works
    await end(recorder, another, Status.FAILED)
    put_back = replace(sent(1, held=False), replay_of=1)
    came = await ingest(recorder, put_back, replace(sent(3, key="another", held=False), replay_of=1))
    revived = await reader.submission("acc", request_id(3))
    assert revived is not None
    assert revived.status is Status.PENDING
    assert came.duplicates == [Duplicate(put_back.submission, request_id(2), replayed=True)]
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert (shown.request_id, shown.status) == (request_id(1), Status.FAILED)
    assert await count(engine, duplicates) == 0
    overview, both = Overview(engine), [request_id(1), request_id(2)]
    assert await overview.failed(both) == {request_id(1): FailedState(1, False, request_id(2))}
    # Where that came to nothing, it may be put back.
    await end(recorder, second, Status.REJECTED)
    assert await overview.failed(both) == {request_id(1): FailedState(1, False, None)}
    assert (await ingest(recorder, put_back)).duplicates == []
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert shown.status is Status.PENDING


async def test_a_replay_beside_one_with_another_key_works(recorder: Recorder) -> None:
    (first,) = (await ingest(recorder, sent(1, keyed=True))).works
    await end(recorder, first, Status.FAILED)
    await ingest(recorder, sent(2, keyed=True))
    assert (await ingest(recorder, replace(sent(1, keyed=True), replay_of=1))).duplicates == []


def cancellation(number: int, at: datetime = LATER) -> CancellationArrival:
    return CancellationArrival(
        CancellationRequest(request_id(number), "acc", "acc:1", at, "Changed plans.", 0), DEADLINE
    )


async def test_who_cancels_a_duplicate_cancels_what_it_repeats(recorder: Recorder, reader: Reader) -> None:
    await ingest(recorder, sent(1), sent(2))
    noted = await recorder.request_cancellations([cancellation(2)], now=LATER)
    assert {name: on.request_id for name, on in noted.items()} == {
        request_id(1): request_id(1),
        request_id(2): request_id(1),
    }
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert shown.cancellation is not None


@pytest.mark.parametrize("together", [False, True])
async def test_so_does_who_cancels_it_before_it_is_ingested(recorder: Recorder, reader: Reader, together: bool) -> None:
    await recorder.request_cancellations([cancellation(2)], now=LATER)
    both = [sent(1), sent(2)]
    for batch in [both] if together else [both[:1], both[1:]]:
        await ingest(recorder, *batch)
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert shown.cancellation is not None
    assert shown.cancellation.reason == "Changed plans."


@pytest.mark.parametrize("before", [False, True])
async def test_what_was_to_be_cancelled_may_be_asked_for_again(recorder: Recorder, before: bool) -> None:
    """But not by a submission that came before its cancellation was asked for."""
    (first,) = (await ingest(recorder, sent(1))).works
    await recorder.request_cancellations([cancellation(1, LATER)], now=LATER)
    if before:
        await end(recorder, first, Status.CANCELLED)
    late = await ingest(recorder, sent(2, at=LATER - INSIDE))
    assert late.repeated == {request_id(2): request_id(1)}
    assert (await ingest(recorder, sent(3, at=LATER))).new == [request_id(3)]


async def test_an_operator_may_name_the_duplicate(recorder: Recorder, engine: AsyncEngine) -> None:
    (first, _) = (await ingest(recorder, sent(1), sent(2), sent(3, key="other"))).works
    await end(recorder, first, Status.IN_DOUBT)
    work = await Repairs(engine).in_doubt(request_id(2))
    assert work is not None
    assert work.submission.request_id == request_id(1)


# --- what is the same, and what is only similar ---


def own(number: int, same: str, **how: Any) -> Arrival:
    """A submission with a body of its own, for the stay, the guest and the price that the others have."""
    return sent(number, same=same, stay="stay", **how)


@pytest.mark.parametrize("together", [False, True])
async def test_another_body_is_a_reservation_of_its_own_that_names_the_others(
    recorder: Recorder, reader: Reader, together: bool
) -> None:
    sending = [own(1, "a"), own(2, "b"), own(3, "a"), own(4, "c", keyed=True)]
    batches = [sending] if together else [[each] for each in sending]
    came = [await ingest(recorder, *batch) for batch in batches]
    works = [work for each in came for work in each.works]
    assert [work.submission.request_id for work in works] == [request_id(1), request_id(2), request_id(4)]
    similar = [(), (request_id(1),), (request_id(2), request_id(1))]
    assert [tuple(work.similar_to) for work in works] == similar
    shown = [await reader.submission("acc", request_id(number)) for number in (1, 2, 4)]
    assert [tuple(each.similar_to) for each in shown if each is not None] == similar
    await recorder.release("w1", [work.id for work in works])
    claimed = await recorder.claim("w1", "acc", [0], now=LATER, limit=5)
    assert [tuple(work.similar_to) for work in claimed] == similar


async def test_what_stands_no_more_is_not_similar(recorder: Recorder) -> None:
    (first,) = (await ingest(recorder, own(1, "a"))).works
    await end(recorder, first, Status.REJECTED)
    (second,) = (await ingest(recorder, own(2, "b"))).works
    assert second.similar_to == ()


async def test_a_reader_finds_what_is_similar_and_whether_its_cancellation_failed(
    recorder: Recorder, reader: Reader
) -> None:
    works = (await ingest(recorder, own(1, "a"), own(2, "b"), own(3, "c"), own(4, "d"))).works
    await recorder.request_cancellations([cancellation(number) for number in (2, 3)], now=LATER)
    await recorder.record("w1", [replace(final(works[2]), cancel_problem={"code": "cancellation_refused"})], [])
    await end(recorder, works[3], Status.REJECTED)
    found = {each.request_id: each for each in await reader.similar("acc", "stay")}
    assert {each.same_key: (each.cancel_requested_at, each.cancellation_failed) for each in found.values()} == {
        "a": (None, False),
        "b": (LATER, False),
        "c": (LATER, True),
    }
    assert found.keys() == {request_id(number) for number in (1, 2, 3)}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("rooms", [2, 3, 5])
async def test_one_transaction_pays_for_several_rooms(recorder: Recorder, rooms: int, together: bool) -> None:
    cart = [own(number, f"room {number}", transaction="CASH") for number in range(rooms)]
    batches = [cart] if together else [[each] for each in cart]
    came = [await ingest(recorder, *batch) for batch in batches]
    assert [each for one in came for each in one.new] == [request_id(number) for number in range(rooms)]


async def test_a_transaction_is_recognised_among_a_great_many_of_its_name(recorder: Recorder) -> None:
    many = [
        sent(number, same=f"s{number}", stay=f"t{number}", transaction="CASH", key=f"k{number}") for number in range(60)
    ]
    assert len((await ingest(recorder, *many)).new) == 60
    late = NOW + timedelta(days=300)
    again = await ingest(recorder, sent(99, same="s3", stay="t3", transaction="CASH", key="phone respelled", at=late))
    assert again.repeated == {request_id(99): request_id(3)}


async def test_a_row_of_the_release_before_is_recognised_as_that_did(recorder: Recorder) -> None:
    await ingest(recorder, sent(1, transaction="tx"))
    again = await ingest(recorder, sent(2, transaction="tx", same="a", stay="stay"))
    assert again.repeated == {request_id(2): request_id(1)}


# --- another body under one key ---


@pytest.mark.parametrize("together", [False, True])
async def test_another_body_under_one_id_ends_visibly(recorder: Recorder, reader: Reader, together: bool) -> None:
    first = sent(1, keyed=True)
    other = replace(
        first, submission=replace(first.submission, fingerprint="f" * 32, accepted_at=NOW + timedelta(minutes=1))
    )
    batches = [[first, other]] if together else [[first], [other]]
    came = [await ingest(recorder, *batch) for batch in batches]
    assert [each for one in came for each in one.conflicts] == [other.submission]
    assert [each for one in came for each in one.new] == [request_id(1)]
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert (shown.conflicting_at, shown.fingerprint) == ("2027-01-01T00:01:00.000Z", first.submission.fingerprint)
    # What the log delivers again is told of again, and changes nothing; the first is no conflict.
    again = await ingest(recorder, first, other)
    assert (again.conflicts, again.new) == ([other.submission], [])
    assert await reader.submission("acc", request_id(1)) == shown


async def test_so_does_one_whose_key_turned_out_to_be_a_duplicate(recorder: Recorder, reader: Reader) -> None:
    second = sent(2, keyed=True)
    await ingest(recorder, sent(1), second)
    other = replace(second, submission=replace(second.submission, fingerprint="f" * 32))
    came = await ingest(recorder, other)
    assert came.conflicts == [other.submission]
    shown = await reader.submission("acc", request_id(1))
    assert shown is not None
    assert shown.conflicting_at is not None


# --- replays ---


async def failed(recorder: Recorder, *arrivals: Arrival) -> None:
    for each in arrivals:
        (work,) = (await ingest(recorder, each)).works
        await end(recorder, work, Status.FAILED)


def put_back(one: Arrival) -> Arrival:
    return replace(one, held=False, replay_of=1)


@pytest.mark.parametrize("transaction", [None, "tx"])
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("together", [False, True])
async def test_of_two_equal_letters_one_is_made(
    recorder: Recorder, transaction: str | None, first: int, together: bool
) -> None:
    equal = [own(number, "a", transaction=transaction) for number in (1, 2)]
    await failed(recorder, *equal)
    letters = [put_back(equal[first - 1]), put_back(equal[2 - first])]
    refused = []
    for batch in [letters] if together else [letters[:1], letters[1:]]:
        refused += (await ingest(recorder, *batch)).duplicates
        for work in await recorder.claim("w1", "acc", [0], now=LATER, limit=5):
            await recorder.record("w1", [final(work)], [])
    assert refused == [Duplicate(letters[1].submission, letters[0].submission.request_id, replayed=True)]


async def test_two_letters_for_two_rooms_are_both_made(recorder: Recorder) -> None:
    cart = [own(1, "a", transaction="tx"), own(2, "b", transaction="tx")]
    for work in (await ingest(recorder, *cart)).works:
        await end(recorder, work, Status.FAILED)
    assert (await ingest(recorder, *map(put_back, cart))).duplicates == []


async def test_a_letter_in_whose_place_a_corrected_one_was_sent_is_not_made(recorder: Recorder) -> None:
    first = own(1, "a")
    await failed(recorder, first)
    await ingest(recorder, own(2, "b", at=LATER + timedelta(minutes=1)))
    assert [each.duplicate_of for each in (await ingest(recorder, put_back(first))).duplicates] == [request_id(2)]


async def test_what_a_refused_cancellation_left_standing_stands(recorder: Recorder) -> None:
    first = own(1, "a", transaction="tx")
    (work,) = (await ingest(recorder, first)).works
    await recorder.record("w1", [final(work)], [])
    asked = CancellationRequest(request_id(1), "acc", "acc:1", NOW + timedelta(seconds=10), None, 1)
    await recorder.request_cancellations([CancellationArrival(asked, DEADLINE)], now=NOW)
    (work,) = await recorder.claim("w1", "acc", [0], now=LATER, limit=5)
    await recorder.record("w1", [replace(final(work), cancel_problem={"code": "cancellation_refused"})], [])
    again = await ingest(recorder, own(2, "a", transaction="tx", at=NOW + timedelta(seconds=20)))
    assert again.repeated == {request_id(2): request_id(1)}
