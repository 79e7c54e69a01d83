"""The last step of an outcome on its way from an adapter: what the PMS said, without card numbers and security codes."""

import asyncio
import re
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic_core import to_json

from forwarder.reservation.booking import Booking
from forwarder.reservation.checks.card_numbers import MIN_DIGITS, digits_of, mask, masked, may_hold_any, plain
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected

O = TypeVar("O", bound=Confirmed | Rejected | Deferred | InDoubt | Absent | Cancelled)  # noqa: E741 - an outcome

_DIGIT: Final = re.compile("[0-9]")
_LARGE_RECORD: Final = 16 * 1024
"""Bytes of a record that take some 20 ms to look through at the worst."""
_ADDRESS: Final = "paymentUrl"
"""Where the guest pays: if it were changed because it looks like something, nobody could."""


async def clean(outcome: O, booking: Booking) -> O:
    """As `without_card_data`; in a thread where there is so much to look through that others would wait for the loop."""
    if isinstance(outcome, Confirmed) and outcome.record and len(to_json(outcome.record)) > _LARGE_RECORD:
        return await asyncio.to_thread(without_card_data, outcome, booking)
    return without_card_data(outcome, booking)


def without_card_data(outcome: O, booking: Booking) -> O:
    """`outcome` with everything masked that looks like a card, also the card of `booking` with other text between its digits."""
    number = "" if booking.card is None else digits_of(booking.card.card_number or "")
    if len(number) < MIN_DIGITS - 1:
        number = ""
    match outcome:
        case Confirmed():
            return _confirmed(outcome, number)
        case Rejected(problem):
            extra = _masked(dict(problem.extra), number) if problem.extra else problem.extra
            said = replace(
                problem, title=_text(problem.title, number), detail=_text(problem.detail, number), extra=extra
            )
            return outcome if said == problem else replace(outcome, problem=said)
        case InDoubt(_, detail) if outcome.pms_reservation_id is not None:
            pms_id = _strewn(str(outcome.pms_reservation_id), number)
            return replace(outcome, detail=_text(detail, number), pms_reservation_id=pms_id)
        case Deferred() | InDoubt():
            said_of_it = _text(outcome.detail, number)
            return outcome if said_of_it == outcome.detail else replace(outcome, detail=said_of_it)
        case _:
            return outcome


def _confirmed(outcome: O, number: str) -> O:
    if not isinstance(outcome, Confirmed) or not (outcome.record or number):
        return outcome
    if not number and not may_hold_any(to_json(outcome.record)):  # as nearly always
        return outcome
    record = {
        name: _masked(part, number) if name != _ADDRESS else _strewn(str(part), number)
        for name, part in outcome.record.items()
    }
    pms_reservation_id = _strewn(outcome.pms_reservation_id, number)
    doubles = tuple(_strewn(one, number) for one in outcome.doubles)
    return replace(outcome, record=record, pms_reservation_id=pms_reservation_id, doubles=doubles)


def _masked(value: Any, number: str) -> Any:
    match value:
        case str():
            return _text(value, number)
        case dict():
            return {name: _masked(part, number) for name, part in value.items()}
        case list() | tuple():
            return [_masked(part, number) for part in value]
        case _:
            return value


def _text(text: str, number: str) -> str:
    return mask(_strewn(text, number))


def _strewn(text: str, number: str) -> str:
    """`text` with each place masked where its digits, ignoring what separates them, are those of `number`."""
    if not number or len(text) < len(number):
        return text
    digits = plain(text)
    places = [match.start() for match in _DIGIT.finditer(digits)]
    in_a_row, shown, end = "".join(digits[place] for place in places), [], 0
    at = in_a_row.find(number)
    while at >= 0:
        after = at + len(number)
        shown += [text[end : places[at]], masked(number)]
        end, at = places[after - 1] + 1, in_a_row.find(number, after)
    return "".join([*shown, text[end:]])
