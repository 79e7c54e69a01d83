"""The simulated PMSs as their callers see them (where each kind is, what an account needs there, and test values), and their world:
every booking that was ever made, whose nights are taken, which keys were seen. Judge in fault tests. One world serves any number of
PMSs, each a `place` such as `demo/generic`. Its methods do not await, so that each is atomic. It sees nothing of a card."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import date
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Any, Final, Literal

from pydantic_core import from_json, to_json

from forwarder.process.clock import Clock, iso
from forwarder.simulator.faults import FaultBoard, Faults

SITES: Final[Mapping[str, str]] = {
    "booking-sync": "booking-sync/api/v3",
    "generic": "generic",
    "website-builder": "website-builder",
}
"""The kinds that the forwarder itself simulates, for test keys, `forwarder up` and `forwarder simulate`, with the path of the base
URL of each, below a name of one's own."""

# --- test values ---

SLOW_SECONDS: Final = 5.0
DOWN_SECONDS: Final = 60.0


class Effect(Enum):
    """What a simulated PMS does with a booking that has one of two test values, in every kind's wire form: a `last_name` of the
    guest's, in any case, or a `number` of the property or the room. No real guest or property has such a value. They are published
    (docs/guides/test-mode.md): their meaning never changes."""

    SOLD_OUT = ("Test-Sold-Out", 9_990_000_001)
    PRICE_CHANGED = ("Test-Price-Changed", 9_990_000_002)
    CARD_REFUSED = ("Test-Card-Refused", 9_990_000_003)
    SLOW = ("Test-Slow", 9_990_000_004)  # It is made, and the response comes after `SLOW_SECONDS`
    DOWN = ("Test-Down", 9_990_000_005)  # 503 for `DOWN_SECONDS` from the first request on; then it is made
    ANSWER_LOST = ("Test-Answer-Lost", 9_990_000_006)  # It is made, and the connection breaks before the response

    def __init__(self, last_name: str, number: int) -> None:
        self.last_name, self.number = last_name, number


def effect_of(*values: object) -> Effect | None:
    """The effect of the first test value among `values`: names of the guest, identifiers of property and room."""
    words = {word: effect for effect in Effect for word in (effect.last_name.casefold(), str(effect.number))}
    found = (words.get(str(value).rpartition(" ")[2].casefold()) for value in values)
    return next(filter(None, found), None)


# --- the bookings ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBooking:
    """`key`: its idempotency key; `fingerprint` distinguishes bodies."""

    name: str
    place: str
    room: str
    arrival: date
    departure: date
    reference: str
    key: str | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(SimulatedBooking):
    """A requested booking. `answer` builds the PMS's response, in JSON, from the booking's id; `effect`: of a test value in it."""

    answer: Callable[[int], bytes]
    effect: Effect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(SimulatedBooking):
    id: int
    answer: bytes


class NotBooked(Exception):
    """Nothing is booked. `key_reused`: the key was used before with another body; `taken`: another booking has some of these
    nights; `price`: the price differs from the requested one; `card`: the card is declined."""

    def __init__(self, why: Literal["key_reused", "taken", "price", "card"]) -> None:
        super().__init__(why)
        self.why = why


class Down(Exception):
    """The PMS is down for this caller, because of a test value."""


class World(AbstractContextManager["World", None]):
    """Close it in the end. `calendars`: nights that are taken are refused; without, any number of bookings share a room. `journal`:
    a file to continue from, and to append to before each response: what it has survives a kill -9 of this process (not a loss of
    power). `faults`: the faults where no others are ordered. Raises `OSError` if the journal cannot be opened."""

    def __init__(
        self, clock: Clock, *, calendars: bool = True, journal: Path | None = None, faults: Faults | None = None
    ) -> None:
        self.clock = clock
        self.faults = FaultBoard(clock, faults)
        self.requests: Counter[str] = Counter()
        self._calendars = calendars
        self._forget()
        self._journal: FileIO | None = None
        if journal is None:
            return
        journal.parent.mkdir(parents=True, exist_ok=True)
        self._journal = journal.open("ab+", buffering=0)
        self._journal.seek(0)
        written = self._journal.read()
        self._journal.truncate(written.rfind(b"\n") + 1)  # a last line may be unfinished
        for line in written[: written.rfind(b"\n") + 1].splitlines():
            entry = from_json(line)
            if "cancelled" in entry:
                self._drop(entry["cancelled"], entry["at"])
            else:
                days = {name: date.fromisoformat(entry[name]) for name in ("arrival", "departure")}
                self._keep(Made(**{**entry, **days, "answer": to_json(entry["answer"])}))

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _append(self, line: bytes) -> None:
        """Raises `OSError`; then `line` does not count as written."""
        if self._journal is not None:
            end = self._journal.seek(0, 2)
            if self._journal.write(line + b"\n") != len(line) + 1:
                self._journal.truncate(end)
                raise OSError("the journal's disk is full")

    @property
    def made(self) -> int:
        """How many bookings were made, including those cancelled since."""
        return len(self._bookings)

    def book(self, wanted: Wanted) -> tuple[Made, bool]:
        """The booking, and whether it is new: not if it was made before with the same key and body. Raises `NotBooked`, `Down`, and
        `OSError` if it cannot be written to the journal."""
        known = None if wanted.key is None else self._by_key.get((wanted.place, wanted.key))
        if known is not None:
            if known.fingerprint != wanted.fingerprint:
                raise NotBooked("key_reused")
            return known, False
        if wanted.effect is Effect.PRICE_CHANGED:
            raise NotBooked("price")
        if wanted.effect is Effect.CARD_REFUSED:
            raise NotBooked("card")
        self.require_up(wanted)
        nights = self._nights[wanted.place, wanted.room] if self._calendars else set()
        if wanted.effect is Effect.SOLD_OUT or not nights.isdisjoint(_nights(wanted)):
            raise NotBooked("taken")
        asked = {one.name: getattr(wanted, one.name) for one in fields(SimulatedBooking)}
        made = Made(id=self._next_id, answer=wanted.answer(self._next_id), **asked)
        # Its answer is JSON already: insert it without encoding it again.
        self._append(to_json({"id": made.id, **asked})[:-1] + b',"answer":' + made.answer + b"}")
        self._keep(made)
        return made, True

    def require_up(self, wanted: Wanted) -> None:
        """Raises `Down` for a while from the first request on, if a test value requests that."""
        if wanted.effect is Effect.DOWN:
            now = self.clock.monotonic()
            if now < self._down_until.setdefault((wanted.place, wanted.reference), now + DOWN_SECONDS):
                raise Down

    def find(self, place: str, reference: str) -> Sequence[Made]:
        return [made for made in self._by_reference.get(reference, ()) if made.place == place]

    def standing(self, reference: str) -> int:
        """How many bookings that carry `reference`, in any place, are not cancelled."""
        return sum(made.id not in self._cancelled for made in self._by_reference.get(reference, ()))

    def at(self, place: str) -> Sequence[Made]:
        return self._by_place.get(place, ())

    def cancel(self, place: str, booking_id: int) -> bool:
        """Cancels a booking and frees its nights; False if there is none with that id. Raises `OSError` as `book` does."""
        made = self._bookings.get(booking_id)
        if made is None or made.place != place:
            return False
        if booking_id not in self._cancelled:
            moment = iso(self.clock.now())
            self._append(to_json({"cancelled": booking_id, "at": moment}))
            self._drop(booking_id, moment)
        return True

    def cancelled_at(self, made: Made) -> str | None:
        return self._cancelled.get(made.id)

    def reset(self) -> None:
        if self._journal is not None:
            self._journal.truncate(0)
        self._forget()

    def stats(self) -> dict[str, Any]:
        repeated = {reference: len(all_made) for reference, all_made in self._by_reference.items() if len(all_made) > 1}
        return {
            "made": self.made,
            "cancelled": len(self._cancelled),
            "by_account": Counter(made.name for made in self._bookings.values()),
            "duplicates": {
                "most_per_reference": max(map(len, self._by_reference.values()), default=0),
                "references": sorted(repeated)[:100],
                "surplus": sum(repeated.values()) - len(repeated),
            },
            "requests": self.requests.total(),
            "requests_by_account": self.requests,
        }

    def _forget(self) -> None:
        self._bookings: dict[int, Made] = {}
        self._by_key: dict[tuple[str, str], Made] = {}
        self._by_reference: dict[str, list[Made]] = defaultdict(list)
        self._by_place: dict[str, list[Made]] = defaultdict(list)
        self._nights: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._cancelled: dict[int, str] = {}
        self._down_until: dict[tuple[str, str], float] = {}
        self._next_id = 1001
        self.requests.clear()

    def _keep(self, made: Made) -> None:
        self._next_id = made.id + 1
        self._bookings[made.id] = made
        self._by_place[made.place].append(made)
        if self._calendars:
            self._nights[made.place, made.room].update(_nights(made))
        if made.reference:
            self._by_reference[made.reference].append(made)
        if made.key is not None:
            self._by_key[made.place, made.key] = made

    def _drop(self, booking_id: int, moment: str) -> None:
        made = self._bookings[booking_id]
        self._cancelled[booking_id] = moment
        self._nights[made.place, made.room].difference_update(_nights(made))


def _nights(stay: SimulatedBooking) -> range:
    return range(stay.arrival.toordinal(), stay.departure.toordinal())
