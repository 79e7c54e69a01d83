"""Rows that go to their PMS together: which, in which order, at what price, and what becomes of each."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from forwarder.pms.port import LEASE_LOST, Capabilities, Limit, Limits
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected, Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import SealedCard
from forwarder.store.submissions.port import NotedCancellation, Work
from forwarder.worker.dispatch.dispatcher import Dispatcher, take_together
from forwarder.worker.dispatch.throttle import Throttles
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal, LeaseLost, PmsHealth, PushContext, combined_signal
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.pushes import DOWN, WELL, Pushes
from tests.support.worker.queue_site import TEN
from tests.support.worker.scripted_pms import FIND, NEITHER, REFUSES_INTENT, ScriptedPms, pusher_to
from tests.support.worker.works import NOW, account, work

MANY = replace(FIND, max_per_create=10)
TAKEN = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken."))
LATER = Deferred("pms_throttled", "Slowly.", 30.0)
UNSURE = InDoubt("pms_timed_out", "No answer.")


# --- which go together ----------------------------------------------------------------------------------------------------


def taken(rows: Sequence[Work], *, most: int = 10, busy: Sequence[str] = ()) -> tuple[list[int], list[int]]:
    """The ids of those that go together, and of those that wait on."""
    waiting = deque(rows)
    together = take_together(waiting, busy, most)
    return [row.id for row in together], [row.id for row in waiting]


def test_what_waits_goes_together_up_to_what_one_request_takes() -> None:
    rows = [work(number) for number in range(1, 6)]
    assert taken(rows) == ([1, 2, 3, 4, 5], [])
    assert taken(rows, most=3) == ([1, 2, 3], [4, 5])
    assert taken(rows, most=1) == ([1], [2, 3, 4, 5])
    assert taken(rows[:1]) == ([1], [])


def test_of_one_room_goes_one_and_none_overtakes_another() -> None:
    same = [work(number, propertyId=7) for number in (1, 2)]
    possibly_sent = work(3, possibly_sent=True, propertyId=8)
    rows = [*same, possibly_sent, work(4, propertyId=8), work(5), work(6)]
    assert taken(rows, busy=["1006\0A"]) == ([1, 5], [2, 3, 4, 6])


@pytest.mark.parametrize(
    "alone",
    [
        work(1, possibly_sent=True),
        replace(work(1), status=Status.IN_DOUBT),
        replace(work(1), status=Status.CONFIRMED, cancellation=NotedCancellation("then")),
        replace(work(1), cancellation=NotedCancellation("then")),
    ],
)
def test_what_is_in_doubt_or_to_be_cancelled_goes_alone(alone: Work) -> None:
    assert taken([alone, work(2), work(3)]) == ([1], [2, 3])
    assert taken([work(2), alone, work(3)]) == ([2, 3], [1])


def test_a_long_queue_of_one_room_is_not_searched_to_its_end() -> None:
    rows = [work(number, propertyId=7) for number in range(1, 500)]
    together, waiting = taken([*rows, work(500)])
    assert (together, waiting) == ([1], list(range(2, 501)))


# --- in a queue -----------------------------------------------------------------------------------------------------------


class _Site:
    """A queue whose PMS takes ten at once; what goes together is written down."""

    def __init__(self, limits: Limits | None) -> None:
        self.clock = ManualClock()
        self.pushes = Pushes()
        self.throttles = Throttles(self.clock, lambda *_: limits or Limits())
        self.dispatcher = Dispatcher(
            self.clock, self.pushes.run, max_held=1000, throttles=self.throttles, max_per_create=lambda _: 10
        )

    async def offer(self, rows: Sequence[Work], *, concurrency: int = 64) -> None:
        self.dispatcher.offer(account(concurrency=concurrency), rows)
        await settle()


_Open = Callable[..., _Site]


@pytest.fixture
async def open_site() -> AsyncIterator[_Open]:
    opened: list[_Site] = []

    def make(limits: Limits | None = None) -> _Site:
        opened.append(_Site(limits))
        return opened[-1]

    yield make
    for site in opened:
        await site.dispatcher.stop(0.0)


async def test_nothing_waits_for_others_to_come(open_site: _Open) -> None:
    site = open_site()
    await site.offer([work(1)])
    assert (site.pushes.started, site.pushes.together) == ([1], [])


async def test_what_has_gathered_goes_as_one_push(open_site: _Open) -> None:
    site = open_site()
    await site.offer([work(number) for number in range(1, 6)], concurrency=1)
    assert (site.pushes.started, site.pushes.together) == ([1], [])
    await site.pushes.answer()
    assert site.pushes.together == [[2, 3, 4, 5]]
    await site.offer([work(6), work(7), work(2, propertyId=9)], concurrency=1)
    assert site.pushes.together == [[2, 3, 4, 5]]
    await site.pushes.answer()
    assert site.dispatcher.held == 2
    assert site.pushes.together == [[2, 3, 4, 5], [6, 7]]
    await site.pushes.answer()
    assert site.dispatcher.held == 0


async def test_their_rooms_are_busy_until_the_pms_has_answered(open_site: _Open) -> None:
    site = open_site()
    await site.offer([work(1), work(2), work(3), work(4)], concurrency=1)
    await site.pushes.answer()
    assert site.pushes.together == [[2, 3, 4]]
    site.dispatcher.configure(account(concurrency=5))
    of_the_same_rooms = [work(13, propertyId=1003), work(14, propertyId=1004)]
    await site.offer([*of_the_same_rooms, work(5)], concurrency=5)
    assert (site.pushes.started, site.pushes.together) == ([1, 5], [[2, 3, 4]])
    await site.pushes.answer()
    assert site.pushes.together == [[2, 3, 4], [13, 14]]


async def test_the_rate_budget_counts_requests_and_not_rows(open_site: _Open) -> None:
    site = open_site(Limits((Limit(1, 10.0),)))
    await site.offer([work(number) for number in range(1, 9)], concurrency=50)
    assert (site.pushes.started, site.pushes.together) == ([1], [])
    await site.clock.advance(21.0)
    assert site.pushes.together == [[2, 3, 4, 5, 6, 7, 8]]


async def test_whether_a_pms_is_well_again_is_found_out_with_one(open_site: _Open) -> None:
    site = open_site()
    for number in range(TEN):
        await site.offer([work(100 + number)])
        await site.pushes.answer(signal=DOWN)
    assert site.throttles.of(account()).failing is not None
    started = len(site.pushes.started)
    await site.offer([work(number) for number in range(1, 6)])
    assert (len(site.pushes.started), site.pushes.together) == (started, [])
    await site.clock.advance(2.0)
    assert (site.pushes.started[started:], site.pushes.together) == ([1], [])
    await site.pushes.answer()
    assert site.pushes.together == [[2, 3, 4, 5]]


# --- at the PMS -----------------------------------------------------------------------------------------------------------


class _ManyPms(ScriptedPms):
    """Answers one request for several by `answers`, all of them."""

    def __init__(self, *answers: Outcome, capabilities: Capabilities = MANY, bug: Exception | None = None) -> None:
        super().__init__(capabilities)
        self.answers = answers
        self.bug = bug
        self.requests: list[list[str]] = []

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        self.requests.append([booking.reference[-2:] for booking in bookings])
        if self.bug is not None:
            raise self.bug
        return self.answers


async def push(
    pms: _ManyPms, works: Sequence[Work], *, may_send: Callable[[Work], bool] = lambda _: True
) -> list[PushContext]:
    pushes = [PushContext(account(), row) for row in works]
    await pusher_to(pms, may_send=may_send).push_together(pushes)
    return pushes


async def test_each_has_its_own_outcome_and_attempt() -> None:
    answers = (Confirmed("pms-1"), TAKEN, LATER, UNSURE)
    pms = _ManyPms(*answers)
    pushed = await push(pms, [work(number) for number in (1, 2, 3, 4)])
    assert pms.requests == [["01", "02", "03", "04"]]
    for each, answer in zip(pushed, answers, strict=True):
        assert each.outcome == answer
        assert each.possibly_sent is (answer is UNSURE)
        assert [attempt.action for attempt in each.attempts] == ["create"]


async def test_what_is_decided_before_is_left_out() -> None:
    pms = _ManyPms(Confirmed("pms-2"))
    late = replace(work(1), deadline_at=NOW)
    damaged = work(3, card=SealedCard("key", "damaged"))
    first, second, third = await push(pms, [late, work(2), damaged])
    assert pms.requests == [["02"]]
    assert isinstance(first.outcome, Deferred)
    assert first.outcome.reason == "deadline_passed"
    assert second.outcome == Confirmed("pms-2")
    assert isinstance(third.outcome, Deferred)
    assert third.outcome.reason == "card_key_missing"


async def test_where_all_is_decided_before_nothing_is_asked() -> None:
    pms = _ManyPms()
    await push(pms, [replace(work(1), deadline_at=NOW)])
    assert pms.requests == []


async def test_nothing_is_sent_once_the_lease_is_lost() -> None:
    pms = _ManyPms(Confirmed("1"), Confirmed("2"))
    pushed = await push(pms, [work(1), work(2)], may_send=lambda _: False)
    assert [type(each.error) for each in pushed] == [LeaseLost, LeaseLost]
    assert pms.requests == []


async def test_each_row_goes_by_the_lease_that_it_is_held_under() -> None:
    pms = _ManyPms(Confirmed("2"))
    works = [replace(work(1), leased_by="before"), replace(work(2), leased_by="now")]
    first, second = await push(pms, works, may_send=lambda work: work.leased_by == "now")
    assert isinstance(first.error, LeaseLost)
    assert second.error is None
    assert pms.requests == [["02"]]


async def test_where_the_lease_was_lost_on_the_way_all_are_left() -> None:
    pms = _ManyPms(*[Deferred(LEASE_LOST, "It was held no longer.")] * 2)
    pushed = await push(pms, [work(1), work(2)])
    assert [type(each.error) for each in pushed] == [LeaseLost, LeaseLost]


async def test_what_is_anothers_by_now_is_left_out() -> None:
    pms = _ManyPms(Confirmed("1"), capabilities=replace(NEITHER, max_per_create=10))
    first, second = await push(pms, [work(1), work(REFUSES_INTENT)])
    assert first.error is None
    assert isinstance(second.error, LeaseLost)
    assert pms.requests == [["01"]]


@pytest.mark.parametrize(
    ("pms", "detail"),
    [
        (_ManyPms(bug=RuntimeError("a bug")), "(RuntimeError)"),
        (_ManyPms(Confirmed("1")), "It did not say what became of each."),
    ],
)
async def test_an_adapters_bug_leaves_them_in_doubt(pms: _ManyPms, detail: str) -> None:
    for each in await push(pms, [work(1), work(2)]):
        assert isinstance(each.outcome, InDoubt)
        assert (each.outcome.reason, each.possibly_sent) == ("adapter_failed", True)
        assert each.outcome.detail.endswith(detail)


async def test_a_bug_of_ours_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    pms = _ManyPms(Confirmed("2"))
    pusher = pusher_to(pms)
    prepare = pusher.prepare

    def buggy(push: PushContext) -> object:
        if push.work.id == 1:
            raise KeyError("a bug")
        return prepare(push)

    monkeypatch.setattr(pusher, "prepare", buggy)
    first, second = PushContext(account(), work(1)), PushContext(account(), work(2))
    await pusher.push_together([first, second])
    assert isinstance(first.error, KeyError)
    assert second.outcome == Confirmed("2")


def test_how_many_is_what_the_accounts_pms_says() -> None:
    assert pusher_to(_ManyPms()).max_per_create(account()) == 10
    assert pusher_to(_ManyPms()).max_per_create(account(kind="unknown")) == 1


@for_each(
    ("signals", "together"),
    [
        ([], NOT_ATTEMPTED),
        ([NOT_ATTEMPTED, NOT_ATTEMPTED], NOT_ATTEMPTED),
        ([NOT_ATTEMPTED, DOWN], DOWN),
        ([DOWN, WELL], WELL),
        ([HealthSignal(PmsHealth.UNKNOWN), DOWN], HealthSignal(PmsHealth.UNKNOWN)),
    ],
)
def test_what_they_tell_of_the_pms(signals: list[HealthSignal], together: HealthSignal) -> None:
    assert combined_signal(signals) == together
