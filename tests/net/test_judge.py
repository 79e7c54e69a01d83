"""The judge of the net says what is wrong with a record, and nothing of one that is right."""

from collections.abc import Callable
from typing import Any

from tests.net.judge import judge
from tests.net.record import Booking, Call, Create, Event, Intent, Record
from tests.support.cases import for_each


def right() -> Record:
    """One submission, accepted, made, announced and read."""
    record = Record()
    wanted(record, 1)
    return record


def wanted(record: Record, number: int, *, key: str | None = None, account: str = "alpha-1", **body: Any) -> str:
    request_id = f"rsv_{number}"
    guest = f"guest-{body.pop('guest', number)}@example.com"
    intent = Intent(number, account, {"guest": {"email": guest}}, f"{guest} {body}", key)
    call = Call("submit", 0, account, 1.0, intent, ended=1.1, status=202, data={"requestId": request_id})
    intent.calls.append(call)
    record.intents.append(intent)
    record.calls += [call, read(request_id, account)]
    record.creates.append(Create(2.0, account, request_id, guest, clean=True))
    record.bookings.append(Booking(account, f"pms-{number}", request_id, guest, 2.0, 2.0))
    record.events.append(Event(2.5, request_id, 1, "confirmed", {"status": "CONFIRMED"}))
    return request_id


def read(request_id: str, account: str, status: str = "CONFIRMED", at: float = 9.0, **more: Any) -> Call:
    data = {"status": status, "record": {"pmsReservationId": request_id.replace("rsv_", "pms-")}, **more}
    return Call("read", 0, account, at, target=request_id, ended=at + 0.1, status=200, data=data)


def made_twice(record: Record) -> None:
    first = record.bookings[0]
    record.bookings.append(Booking(first.account, "pms-9", first.reference, first.guest, 3.0, 3.0))


def wanted_once_and_made_twice(record: Record) -> None:
    wanted(record, 2, guest=1)


def never_made(record: Record) -> None:
    record.bookings.clear()


def pending_in_the_end(record: Record) -> None:
    record.calls[-1].data = {"status": "PENDING"}
    record.events.clear()


def refused_and_there(record: Record) -> None:
    record.calls[-1].data = {"status": "REJECTED"}
    record.events[:] = [Event(2.5, "rsv_1", 1, "rejected", {})]


def swallowed(record: Record) -> None:
    wanted(record, 2, notes="another room")
    record.intents[1].calls[0].data = {"requestId": "rsv_1"}


def sent_after_its_cancellation(record: Record) -> None:
    accepted = Call("cancel", 0, "alpha-1", 1.2, target="rsv_1", ended=1.3, status=202)
    record.calls.append(accepted)
    record.creates[:] = [Create(50.0, "alpha-1", "rsv_1", record.bookings[0].guest, clean=True)]


def answered_with_what_was_cancelled(record: Record) -> None:
    first = record.calls[0]
    record.calls.append(Call("cancel", 0, "alpha-1", 1.2, target="rsv_1", ended=1.3, status=202))
    again = Call("submit", 0, "alpha-1", 2.0, first.intent, ended=2.1, status=202, data=first.data)
    record.intents[0].calls.append(again)
    record.calls.append(read("rsv_1", "alpha-1", "CANCELLED"))


def cancelled_without_being_asked(record: Record) -> None:
    record.bookings[0].cancelled_at, record.bookings[0].cancelled_by = 5.0, "forwarder"


def read_by_another_account(record: Record) -> None:
    record.calls.append(read("rsv_1", "beta-1"))


def sent_to_another_pms(record: Record) -> None:
    record.creates.append(Create(3.0, "beta-1", "rsv_1", "guest-1@example.com", clean=True))


def announced_out_of_order(record: Record) -> None:
    record.events[:] = [Event(2.5, "rsv_1", 2, "confirmed", {}), Event(2.6, "rsv_1", 1, "in_doubt", {})]


def went_back(record: Record) -> None:
    record.events.append(Event(3.0, "rsv_1", 2, "rejected", {}))


def read_as_it_was_before(record: Record) -> None:
    record.calls.append(read("rsv_1", "alpha-1", "PENDING", at=5.0))
    record.calls.append(record.calls.pop(1))


def never_announced(record: Record) -> None:
    record.events.clear()


def held_up(record: Record) -> None:
    record.creates[:] = [Create(500.0, "alpha-1", "rsv_1", record.bookings[0].guest, clean=True)]


def parked_without_a_reason(record: Record) -> None:
    record.calls[-1].data = {"status": "IN_DOUBT"}
    record.events[:] = [Event(2.5, "rsv_1", 1, "in_doubt", {})]


def in_doubt_for_ever(record: Record) -> None:
    record.bookings[0].findable = True
    record.unwell.add("alpha-1")
    parked_without_a_reason(record)


def answered_with_an_internal_error(record: Record) -> None:
    record.calls[0].status = 500


def key_with_two_names(record: Record) -> None:
    first, second = (wanted(record, number, key="k", guest=5) for number in (5, 6))
    assert first != second


def lost_in_silence(record: Record) -> None:
    record.gone["rsv_7"] = 3.0


def doubled_in_silence(record: Record) -> None:
    record.bookings[0].shown_with_double = True
    record.calls[-1].data = {**record.calls[-1].data, "attempts": [{"action": "find", "outcome": "confirmed"}]}


WRONG: list[tuple[Callable[[Record], None], str]] = [
    (made_twice, "made_once"),
    (wanted_once_and_made_twice, "wanted_once_stands_once"),
    (never_made, "statuses_are_true"),
    (pending_in_the_end, "accepted_has_an_end"),
    (refused_and_there, "statuses_are_true"),
    (swallowed, "nothing_is_swallowed"),
    (sent_after_its_cancellation, "cancelled_is_not_sent"),
    (answered_with_what_was_cancelled, "asked_again_is_another"),
    (cancelled_without_being_asked, "nothing_else_is_cancelled"),
    (read_by_another_account, "workspaces_are_apart"),
    (sent_to_another_pms, "workspaces_are_apart"),
    (announced_out_of_order, "events_are_in_order"),
    (went_back, "events_are_in_order"),
    (read_as_it_was_before, "reads_are_of_a_register"),
    (never_announced, "events_tell_the_end"),
    (held_up, "nobody_waits_for_others"),
    (parked_without_a_reason, "doubt_has_a_reason_and_ends"),
    (in_doubt_for_ever, "doubt_has_a_reason_and_ends"),
    (answered_with_an_internal_error, "no_process_ended"),
    (key_with_two_names, "keys_say_the_same"),
    (lost_in_silence, "losses_are_noticed"),
    (doubled_in_silence, "doubles_are_told"),
]


def test_nothing_is_wrong_with_a_record_that_is_right() -> None:
    assert judge(right()) == []


@for_each(("spoil", "rule"), WRONG, ids=lambda each: getattr(each, "__name__", each))
def test_it_says_what_is_wrong(spoil: Callable[[Record], None], rule: str) -> None:
    record = right()
    spoil(record)
    assert rule in {each.partition(":")[0] for each in judge(record)}
