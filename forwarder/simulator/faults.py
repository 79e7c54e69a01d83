"""Faults on demand: what a simulated PMS gets wrong, for how long, and how often.

An order is given for one name and holds for all PMSs under that name. Orders live in memory only.
"""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from forwarder.process.clock import Clock

Mode = Literal[
    "none",
    "down",  # 503
    "throttle",  # 429
    "error500",
    "redirect",  # 302
    "garbage",  # 201, and a body that is not JSON
    "huge",  # 201, and a body of 10 MB
    "wrong_types",  # 201, and JSON with wrong types: in a different way each time
    "hang",  # no response until the fault is lifted, and then none either
    "drip",  # status and headers at once, then the body a byte at a time: never whole within a push, even if the fault is lifted
    "reset",  # the connection is reset
    "hang_after_booking",
    "drip_after_booking",
    "reset_after_booking",
    "error500_after_booking",
    "down_after_booking",  # 503, from a gateway or a cache in front of it
    "timeout_after_booking",  # 408, from a proxy whose wait timed out
    "redirect_after_booking",  # 302
    "see_other_after_booking",  # 303
    "exists_after_booking",  # 409: from a gateway that sent it twice
    "taken_after_booking",  # 422 in other words
    "anothers_after_booking",  # the response to another client's create
    "garbage_after_booking",
    "wrong_types_after_booking",
]


Habit = Literal[
    "shows_late",  # look-ups show a booking `seconds` after it was made
    "commits_late",  # a booking is made `seconds` after the request; the answer is a 504 at once
    "accepts",  # the same, and the answer is an empty 202
    "reference_cut",  # our reference is kept as its first 30 characters
    "reference_upper",
    "reference_replaced",  # by a code of its own
    "reference_in_text",
    "exists",  # 409 for a reference that it has already
    "list_shifts",  # each request for a list omits one more of its oldest bookings, but never the last
    "shows_twice",  # each booking is listed twice
    "books_twice",
    "keys_end",  # idempotency keys are forgotten after `seconds`
]
"""Behaviour of a PMS that is no fault, and that a forwarder must cope with."""


class Faults(BaseModel):
    """An order. `delay_ms` delays every response; `mode` hits a share of `rate` of the requests, at most `count` of them, and none
    from `until` on. `scope`: every request, or only those that make bookings. Modes that end in `_after_booking` hit after a
    booking has been made. `habits` apply to every request in any mode; `seconds` belongs to them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delay_ms: Annotated[float, Field(ge=0, le=600_000)] = 0
    mode: Mode = "none"
    rate: Annotated[float, Field(ge=0, le=1)] = 1
    retry_after: Annotated[float, Field(ge=0)] | None = None
    count: Annotated[int, Field(ge=0)] | None = None
    until: AwareDatetime | None = None
    scope: Literal["all", "bookings"] = "all"
    habits: frozenset[Habit] = frozenset()
    seconds: Annotated[float, Field(ge=0, le=604_800)] = 60

    @property
    def after_booking(self) -> bool:
        return self.mode.endswith("_after_booking")

    @property
    def only_bookings(self) -> bool:
        return self.after_booking or self.scope == "bookings"


@dataclass(slots=True)
class Order:
    """Faults in force. `met` is set when the first request was hit; `lifted` when they end: hanging responses then end too."""

    faults: Faults
    struck: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)

    def strikes(self, *, books: bool, now: datetime, chance: float) -> bool:
        """Whether this request is hit; counts it if so."""
        faults = self.faults
        spent = faults.count is not None and self.struck >= faults.count
        over = faults.until is not None and now >= faults.until
        passed_over = faults.only_bookings and not books
        if faults.mode == "none" or spent or over or passed_over or chance >= faults.rate:
            return False
        self.struck += 1
        self.met.set()
        return True


class FaultBoard:
    """The orders, by name. `everywhere` applies to names without an order of their own. `seed` decides which requests a rate
    below 1 hits."""

    def __init__(self, clock: Clock, everywhere: Faults | None, seed: int | None) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - no secret hangs on it
        self._everywhere = None if everywhere is None else Order(everywhere)
        self._orders: dict[str, Order] = {}

    def order(self, name: str, faults: Faults) -> None:
        """Orders `faults` at `name`, in place of an earlier order."""
        self._lift(name)
        self._orders[name] = Order(faults)

    def lift(self, name: str) -> None:
        """Lifts the faults ordered at `name`."""
        self._lift(name)
        self._orders.pop(name, None)

    def at(self, name: str) -> Order | None:
        """The order in force at `name`."""
        return self._orders.get(name, self._everywhere)

    def habits(self, name: str) -> frozenset[Habit]:
        """The habits of the PMSs under `name`."""
        order = self.at(name)
        return frozenset() if order is None else order.faults.habits

    def strikes(self, order: Order, *, books: bool) -> bool:
        """Whether `order` hits a request, which `books` or does not."""
        return order.strikes(books=books, now=self._clock.now(), chance=self._random.random())

    def _lift(self, name: str) -> None:
        if name in self._orders:
            self._orders[name].lifted.set()
