"""PMSs as one process reaches them, step by step: it may die once the first byte is gone, or never hear of an answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forwarder.pms.port import AccountConnection, Limits
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, Deferred, InDoubt, LookupOutcome, Outcome
from tests.support.machine.worlds.mishap import Effect, Mishap
from tests.support.machine.worlds.ownership import Ownership
from tests.support.machine.worlds.pms import KINDS, Pmss, capabilities_of
from tests.support.machine.worlds.process import Crash, Process


class ProcessPmss:
    """`PmsDirectory` as one process has it; each create, and each cancellation, is one step."""

    def __init__(self, pmss: Pmss, ownership: Ownership, process: Process) -> None:
        self._pmss = pmss
        self._ownership = ownership
        self._process = process

    def kinds(self) -> Sequence[str]:
        return sorted(KINDS)

    def limits(self, kind: str, options: Mapping[str, Any]) -> Limits:
        return Limits()

    def check(self, kind: str, options: Mapping[str, Any]) -> None:
        raise AssertionError("a worker checks no settings")

    def connect(self, connection: AccountConnection) -> "ProcessPms":
        return ProcessPms(self._pmss, self._ownership, self._process, connection)


class ProcessPms:
    """See `Pms`. Nothing waits between being called and the first byte: that window is a known one. `began`: when the worker turned
    to the push that this is for."""

    def __init__(
        self, pmss: Pmss, ownership: Ownership, process: Process, connection: AccountConnection, began: float = 0.0
    ) -> None:
        self.capabilities = capabilities_of(connection.account_id, connection.options)
        self._pmss = pmss
        self._ownership = ownership
        self._process = process
        self._connection = connection
        self._account_id = connection.account_id
        self._began = began

    def while_held(self, held: Callable[[], bool]) -> "ProcessPms":
        """Each of its actions is one request, and the worker has looked right before."""
        now = self._process.loop.time()
        return ProcessPms(self._pmss, self._ownership, self._process, self._connection, began=now)

    async def create(self, booking: Booking) -> Outcome:
        (outcome,) = await self.create_many([booking])
        return outcome

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        mishap = self._sending("create")
        for booking in bookings:
            first = not self._pmss.pushes.any_of(booking.reference)
            self._ownership.send(self._process, booking.reference, self._began, first=first)
        with self._ownership.push(self._process, self._account_id, bookings, self._began):
            return await self._create(bookings, mishap)

    async def _create(self, bookings: Sequence[Booking], mishap: Mishap | None) -> Sequence[Outcome]:
        keyed = self.capabilities.idempotent_create
        sent = [self._pmss.create(self._account_id, booking.reference, keyed=keyed) for booking in bookings]
        if mishap is not None and mishap.effect is not Effect.SLOW:
            await self._process.suffer(mishap)
        self._process.pushes_under_way += 1
        try:
            outcomes = [await answer for _, answer in sent]
        finally:
            self._process.pushes_under_way -= 1
        await self._process.awake()
        if mishap is not None and mishap.effect is Effect.UNANSWERED:
            return [InDoubt("pms_connection_lost", "The connection was lost.")] * len(bookings)
        for booking, (push, _), outcome in zip(bookings, sent, outcomes, strict=True):
            self._pmss.pushes.answer(booking.reference, push, outcome)
        return outcomes

    async def find(self, booking: Booking) -> LookupOutcome:
        self._process.alive()
        lookup, seconds = self._pmss.find(self._account_id, booking.reference)
        await self._process.clock.sleep(seconds)
        return lookup

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        mishap = self._sending("cancel")
        assert pms_reservation_id in self._pmss.made[booking.reference], "another one would have been cancelled"
        cancellation, seconds = self._pmss.cancel(self._account_id, booking.reference)
        if mishap is not None and mishap.effect is not Effect.SLOW:
            await self._process.suffer(mishap)
        await self._process.clock.sleep(seconds)
        if mishap is not None and mishap.effect is Effect.UNANSWERED:
            return Deferred("pms_connection_lost", "The connection was lost.")
        return cancellation

    def _sending(self, name: str) -> Mishap | None:
        """One step begins: what strikes it once its first byte is gone."""
        self._process.alive()
        mishap = self._process.mishaps.ahead("pms", name)
        if mishap is not None and mishap.effect is Effect.CRASH_BEFORE:
            self._process.crash()
            raise Crash
        return self._process.mishaps.step("pms", name)
