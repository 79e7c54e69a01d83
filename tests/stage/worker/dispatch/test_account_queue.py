"""Account queues: bounded, in order, one push per room, within the rate; an account's trouble stays its own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.push.run import HealthSignal, PushContext
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.pushes import WELL, Pushes
from tests.support.worker.works import account, work

_opened: list[Dispatcher] = []


@pytest.fixture(autouse=True)
async def _close_dispatcher() -> AsyncIterator[None]:
    yield
    while _opened:
        await _opened.pop().stop(0.0)


def _dispatcher(pms: Pushes, *, max_held: int = 100, clock: ManualClock | None = None) -> Dispatcher:
    dispatcher = Dispatcher(clock or ManualClock(), pms.run, max_held=max_held)
    _opened.append(dispatcher)
    return dispatcher


async def test_no_more_in_flight_than_the_account_allows_and_in_order() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(concurrency=2), [work(number) for number in (1, 2, 3, 4)])
    await settle()
    assert pms.started == [1, 2]
    await pms.answer(1)
    assert pms.started == [1, 2, 3]
    await pms.answer()
    await pms.answer()
    assert pms.started == [1, 2, 3, 4]
    assert dispatcher.held == 0


async def test_one_push_per_room_and_a_busy_room_holds_up_no_other() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    same_room = [work(number, propertyId=7) for number in (1, 2, 3)]
    dispatcher.offer(account(), [*same_room, work(4)])
    await settle()
    assert pms.started == [1, 4]
    await pms.answer(1)
    await pms.answer(2)
    assert pms.started == [1, 4, 2, 3]
    assert pms.most_in_one_room == 1


async def test_a_room_is_free_once_the_pms_has_answered_even_while_recording_waits() -> None:
    pms = Pushes()
    pms.recording = False
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(), [work(1, propertyId=7), work(2, propertyId=7)])
    await settle()
    await pms.answer(1)
    assert pms.started == [1, 2]
    assert dispatcher.held == 2
    pms.record()
    assert dispatcher.held == 1


async def test_pushes_that_wait_for_nothing_leave_the_event_loop_its_turn() -> None:
    turns = Counter[int]()

    async def run(pushes: Sequence[PushContext]) -> HealthSignal:
        turns[turn] += 1
        pushes[0].release()
        return WELL

    turn, dispatcher = 0, Dispatcher(ManualClock(), run, max_held=1000)
    dispatcher.offer(account(concurrency=1), [work(number) for number in range(1, 501)])
    while dispatcher.held:
        await asyncio.sleep(0)
        turn += 1
    assert turns.total() == 500
    assert max(turns.values()) == 1


async def test_a_push_that_raises_leaves_its_row_and_the_others_go_on() -> None:
    pushed = []

    async def run(pushes: Sequence[PushContext]) -> HealthSignal:
        pushed.append(pushes[0].work.id)
        if pushed == [1]:
            raise RuntimeError("a bug")
        pushes[0].release()
        return WELL

    dispatcher = Dispatcher(ManualClock(), run, max_held=10)
    dispatcher.offer(account(concurrency=1), [work(1), work(2, propertyId=1001)])
    await settle()
    assert (pushed, dispatcher.held) == ([1, 2], 0)


async def test_a_hanging_account_does_not_delay_another() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account("hanging", concurrency=1), [work(1), work(2)])
    dispatcher.offer(account("well", concurrency=1), [work(3), work(4)])
    await settle()
    await pms.answer(3)
    await pms.answer(4)
    assert pms.started == [1, 3, 4]


async def test_the_rate_budget_spaces_pushes() -> None:
    pms, clock = Pushes(), ManualClock()
    dispatcher = _dispatcher(pms, clock=clock)
    dispatcher.offer(account(rate_per_second=2.0), [work(number) for number in range(1, 7)])
    await settle()
    assert pms.started == [1, 2]
    await clock.advance(0.5)
    assert pms.started == [1, 2, 3]
    await clock.advance(1.5)
    assert pms.started == [1, 2, 3, 4, 5, 6]


async def test_room_in_memory_is_bounded_and_shared_evenly() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms, max_held=10)
    big, small = account("big", concurrency=1), account("small", concurrency=1)
    assert dispatcher.room_for(big) == 10
    dispatcher.offer(big, [work(number) for number in range(1, 11)])
    assert dispatcher.room_for(small) == 0
    assert dispatcher.held == 10
    await settle()
    for _ in range(3):
        await pms.answer()
    assert dispatcher.room_for(small) == 3
    assert dispatcher.room_for(big) == 3


async def test_rows_on_their_way_from_the_store_count_as_held() -> None:
    dispatcher = _dispatcher(Pushes(), max_held=10)
    big, small = account("big"), account("small")
    with dispatcher.reserving() as reserve, dispatcher.reserving() as reserve_at_the_same_time:
        assert reserve(big, 7) == 7
        assert reserve_at_the_same_time(big, 7) == 3
        assert reserve(small, 1) == 0
    assert dispatcher.room_for(small) == 10


async def test_an_account_with_much_to_do_leaves_the_others_their_share() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms, max_held=10)
    big, small = account("big", concurrency=1), account("small", concurrency=1)
    dispatcher.offer(small, [work(1, account="small")])
    assert dispatcher.room_for(big) == 5
    dispatcher.offer(big, [work(number, account="big") for number in range(2, 8)])
    assert dispatcher.room_for(big) == 0
    assert dispatcher.room_for(small) == 3


async def test_a_queue_that_runs_low_asks_for_more() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(concurrency=2), [work(1), work(2)])
    dispatcher.note_more(account(concurrency=2))
    await settle()
    assert not dispatcher.refill_wanted.is_set()
    await pms.answer(1)
    assert dispatcher.refill_wanted.is_set()
    assert dispatcher.running_low() == ["acc"]


async def test_a_paused_account_gives_up_what_has_not_started() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(concurrency=1), [work(1), work(2), work(3)])
    await settle()
    assert dispatcher.configure(account(concurrency=1, paused=True)) == [2, 3]
    assert dispatcher.room_for(account(paused=True)) == 0
    assert dispatcher.held == 1


async def test_stopping_waits_for_what_was_started_and_gives_back_the_rest() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(concurrency=1), [work(1), work(2, propertyId=1001)])
    await settle()
    stopping = asyncio.create_task(dispatcher.stop(60.0))
    await settle()
    assert not stopping.done()
    pms.recording = False
    await pms.answer(1)
    assert not stopping.done()
    pms.record()
    assert await stopping == ([2], 0)
    assert pms.started == [1]


async def test_stopping_breaks_off_what_is_not_through_in_time_and_tells_of_it() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(), [work(1), work(2)])
    await settle()
    assert await dispatcher.stop(0.0) == ([], 2)
    assert dispatcher.held == 0


async def test_the_same_row_is_not_held_twice() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(), [work(1)])
    dispatcher.offer(account(), [work(1)])
    await settle()
    assert pms.started == [1]


async def test_a_rate_that_is_raised_holds_at_once() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(rate_per_second=0.001), [work(1), work(2)])
    await settle()
    assert pms.started == [1]
    dispatcher.configure(account(rate_per_second=10.0))
    await settle()
    assert pms.started == [1, 2]


async def test_closing_a_queue_does_not_renew_its_budget() -> None:
    pms, clock = Pushes(), ManualClock()
    dispatcher = _dispatcher(pms, clock=clock)
    slow = account(rate_per_second=1.0)
    dispatcher.offer(slow, [work(1)])
    await settle()
    await pms.answer()
    dispatcher.close_if_idle(slow.id)
    assert not dispatcher.queues
    dispatcher.offer(slow, [work(2)])
    await settle()
    assert pms.started == [1]
    await clock.advance(1.0)
    assert pms.started == [1, 2]


async def test_a_queue_that_opens_again_goes_by_the_settings_of_now() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(rate_per_second=1.0), [work(1)])
    await settle()
    await pms.answer()
    dispatcher.close_if_idle("acc")
    dispatcher.offer(account(rate_per_second=2.0), [work(2), work(3)])
    await settle()
    assert pms.started == [1, 2, 3]


async def test_a_queue_that_gave_up_all_its_rows_waits_for_nothing() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    before = asyncio.all_tasks()
    dispatcher.offer(account(rate_per_second=1.0), [work(1), work(2)])
    await settle()
    await pms.answer(1)
    assert len(asyncio.all_tasks()) > len(before)
    dispatcher.configure(account(rate_per_second=1.0, paused=True))
    await settle()
    assert asyncio.all_tasks() == before


async def test_what_is_offered_after_the_stop_does_not_start() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    dispatcher.offer(account(), [work(1)])
    await settle()
    await pms.answer()
    await dispatcher.stop(0.0)
    dispatcher.offer(account(), [work(2)])
    await settle()
    assert pms.started == [1]


async def test_nor_does_what_is_offered_then_of_an_account_that_had_no_queue() -> None:
    pms = Pushes()
    dispatcher = _dispatcher(pms)
    await dispatcher.stop(0.0)
    dispatcher.offer(account("another"), [work(1)])
    await settle()
    assert pms.started == []
