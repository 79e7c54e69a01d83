"""Rejects well-formed requests that make no sense: an arrival long past, more adults and children than guests, an impossible
time, a guest of the booking-engine operation without a name. Checked when a request arrives, unless its account skips the
check, and never after acceptance. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from forwarder.reservation.problems.problem import Fault
from forwarder.reservation.request import MAX_GUESTS, GeneralRequest, Operation, whole
from forwarder.reservation.usual import AnyRequest

PAST_ARRIVAL: Final = "past-arrival"
GUEST_COUNTS: Final = "guest-counts"
CLOCK_TIMES: Final = "clock-times"
GUEST_NAME: Final = "guest-name"
CARD_LIKE_IDS: Final = "card-like-ids"
"""For a PMS whose identifiers happen to look like card numbers; checked in `ingress.card_text`."""

CHECKS: Final = (PAST_ARRIVAL, GUEST_COUNTS, CLOCK_TIMES, GUEST_NAME, CARD_LIKE_IDS)
"""The names of the checks that an account can skip."""

_LATEST: Final = timedelta(days=1, hours=12)
"""A guest who arrives after midnight books for the day before; the last time zone with today's date is 12 hours behind UTC."""


class _Said(NamedTuple):
    """The values to check; None for one that is missing or of another type. `names`: None where every name is optional."""

    arrival: date | None
    guests: int | None
    adults: int | None
    children: int | None
    arrival_time: str | float | None
    departure_time: str | float | None
    names: tuple[object, object, object] | None


class Plausibility(NamedTuple):
    """The checks of one request. `earliest_arrival`: the day before the earliest date on Earth; None if any day is accepted.
    `skipped`: the names of the checks that its account skips."""

    earliest_arrival: date | None
    skipped: Collection[str] = ()

    def faults(self, request: AnyRequest) -> list[Fault]:
        guest = request.guest
        said = _Said(
            request.arrival_date,
            request.number_of_guests,
            request.number_of_adults,
            request.number_of_children,
            request.arrival_estimated_time,
            request.departure_estimated_time,
            None if isinstance(request, GeneralRequest) else (guest.name, guest.first_name, guest.last_name),
        )
        return list(self._faults(said))

    def faults_in(self, operation: Operation, document: object) -> list[Fault]:
        """The faults of a document that may be invalid in any way, as far as its values can be checked."""
        return list(self._faults(_said_in(operation, document))) if isinstance(document, dict) else []

    def _faults(self, said: _Said) -> Iterator[Fault]:
        if self.earliest_arrival and said.arrival and said.arrival < self.earliest_arrival:
            yield Fault("/arrivalDate", "arrival_in_the_past", "must be no earlier than yesterday")
        if said.guests and (said.adults or 0) + (said.children or 0) > said.guests and GUEST_COUNTS not in self.skipped:
            right = "must be at least numberOfAdults and numberOfChildren together"
            yield Fault("/numberOfGuests", "fewer_than_adults_and_children", right)
        # A name that is not a text is refused for its type.
        named = any(each is not None and (not isinstance(each, str) or each.strip()) for each in said.names or (0,))
        if not named and GUEST_NAME not in self.skipped:
            right = "must be there and not be empty, unless firstName or lastName is"
            yield Fault("/guest/name", "guest_without_name", right)
        if CLOCK_TIMES not in self.skipped:
            for day, time in (("arrival", said.arrival_time), ("departure", said.departure_time)):
                if time is not None and not is_possible(time):
                    right = "must be a time that a clock shows, such as 15:30, or words"
                    yield Fault(f"/{day}EstimatedTime", "impossible_time", right)


def plausibility(now: datetime, skipped: Collection[str] = ()) -> Plausibility:
    """The checks of a request that arrives at `now`, in UTC."""
    return Plausibility(None if PAST_ARRIVAL in skipped else (now - _LATEST).date(), skipped)


def _said_in(operation: Operation, document: Mapping[str, Any]) -> _Said:
    guest = document.get("guest")
    # A missing or null guest is refused for that.
    known = guest if isinstance(guest, dict) else {"name": guest or "?"}
    return _Said(
        _day(document.get("arrivalDate")),
        _count(document.get("numberOfGuests")),
        _count(document.get("numberOfAdults")),
        _count(document.get("numberOfChildren")),
        _time(document.get("arrivalEstimatedTime")),
        _time(document.get("departureEstimatedTime")),
        None if operation == "general" else (known.get("name"), known.get("firstName"), known.get("lastName")),
    )


def _day(value: object) -> date | None:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _count(value: object) -> int | None:
    number = whole(value)
    return number if type(number) is int and 0 <= number <= MAX_GUESTS else None


def _time(value: object) -> str | float | None:
    time = whole(value)
    return time if isinstance(time, str | int | float) and not isinstance(time, bool) else None


# --- times ---

_HALF_A_DAY: Final = 12
_DAY: Final = 24
_SIXTY: Final = 60

_USUAL_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_HALF: Final = r"(?:([ap])\.?m?\.?)?"
_ZONE: Final = r"(?:z|[+-]\d\d:?\d\d)?"
# Common notations of times. At most nine digits: longer numbers are no times. Blanks are possessive, so that the time is linear.
_CLOCK_TIME = re.compile(
    rf"\s*+(\d{{1,9}})\s*+[:.h]\s*+(\d{{1,9}})(?:\s*+[:.]\s*+(\d\d)(?:[.,]\d+)?)?\s*+{_HALF}\s*+h?{_ZONE}\s*+",
    re.ASCII | re.IGNORECASE,
)
_HOUR = re.compile(r"\s*(\d{1,9})\s*(?:([ap])\.?m\.?|h)\s*", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"\s*(-?)(\d{1,4})\s*", re.ASCII)


def is_possible(time: str | float) -> bool:
    """Whether `time` is possible on a clock. Digits alone, also as a number, are an hour (15), or hours and minutes (1530);
    five or more digits, and words, are not checked."""
    if isinstance(time, float):
        return 0 <= time <= _DAY  # a part of an hour: 15.5
    text = str(time)
    if _USUAL_TIME.fullmatch(text):
        return True
    if digits := _DIGITS.fullmatch(text):
        minutes = int(digits[2][-2:]) if len(digits[2]) > len("24") else 0
        hours = int(digits[2][:-2]) if len(digits[2]) > len("24") else int(digits[2])
        return not digits[1] and _shows(hours, minutes)
    if hour := _HOUR.fullmatch(text):
        return _shows(int(hour[1]), half=hour[2])
    if clock := _CLOCK_TIME.fullmatch(text):
        return _shows(int(clock[1]), int(clock[2]), int(clock[3] or 0), half=clock[4])
    return True


def _shows(hours: int, minutes: int = 0, seconds: int = 0, *, half: str | None = None) -> bool:
    if half:
        return hours <= _HALF_A_DAY and minutes < _SIXTY and seconds < _SIXTY
    return (hours < _DAY and minutes < _SIXTY and seconds < _SIXTY) or (hours, minutes, seconds) == (_DAY, 0, 0)
