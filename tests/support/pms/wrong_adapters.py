"""Adapters that each break one promise, and are right in all else: what the conformance kit has to find out."""

import asyncio
import logging
import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import urljoin

import httpx
from pydantic import ConfigDict
from pydantic_core import from_json

from forwarder.pms.fields import FieldTable, LeftOut
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.response import NoResponse, NotSent, Response
from forwarder.pms.kinds.generic import GenericAdapter
from forwarder.pms.port import AccountConnection, Capabilities
from forwarder.pms.sdk import NoOptions
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)

GRACE_SECONDS: Final = 0.5
"""How much later than the push time-out the checks may see a push of theirs end: each is waited for as long as this, and longer."""
_LOOKS_UP: Final = Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)


class UndescribedOptions(GenericAdapter):
    class Options(NoOptions):
        station: str = "main"

    options: ClassVar[type[NoOptions]] = Options


class AnyOptions(GenericAdapter):
    class Options(NoOptions):
        model_config = ConfigDict(extra="allow")

    options: ClassVar[type[NoOptions]] = Options


class DropsPets(GenericAdapter):
    """In silence: its table says that they are sent."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        fields = {name: value for name, value in booking.fields.items() if name != "numberOfPets"}
        return await super().create(replace(booking, fields=fields), send)


class SaysThatItKeepsNotes(GenericAdapter):
    fields: ClassVar[FieldTable] = GenericAdapter.fields.but({"notes": LeftOut("nobody reads them")})


class KnowsNoPets(GenericAdapter):
    """As an adapter from before there were any."""

    fields: ClassVar[FieldTable] = FieldTable(
        {name: fate for name, fate in GenericAdapter.fields.fates.items() if name != "numberOfPets"}, notes="notes"
    )


class ConnectsAtOnce(GenericAdapter):
    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        super().__init__(connection, clock)
        where = httpx.URL(connection.base_url)
        if where.host == "127.0.0.1" and not self.opened:
            self.opened.append(socket.create_connection((where.host, where.port or 80)))


class ConfirmsNothing(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        await self.find(booking, send)
        return Confirmed("F1", named=True)


class OddRecord(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        return replace(outcome, record={"fax": "F1"}) if isinstance(outcome, Confirmed) else outcome


class TakesAnyAnswer(GenericAdapter):
    """As one that names the reference, which it does not read."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        if isinstance(outcome, InDoubt) and self._said is not None:
            return Confirmed(self._said, named=True)
        self._said = outcome.pms_reservation_id if isinstance(outcome, Confirmed) else self._said
        return outcome

    _said: str | None = None


class SharesState(GenericAdapter):
    """Keeps what it is asked in itself, where the next push changes it."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        self._now = booking
        await asyncio.sleep(0)
        return await super().create(self._now, send)


class KeyOfItsOwn(GenericAdapter):
    """A new idempotency key for each push, which is none."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        async def renamed(request: Request) -> Response:
            if request.method == "POST":
                others = [header for header in request.headers if header[0] != b"Idempotency-Key"]
                key = (b"Idempotency-Key", f'"{uuid.uuid4()}"'.encode())
                request = replace(request, headers=[*others, key])
            return await send(request)

        return await super().create(booking, renamed)


class ReversesBatches(GenericAdapter):
    capabilities: ClassVar[Capabilities] = replace(GenericAdapter.capabilities, max_per_create=3)

    async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
        return [await self.create(booking, send) for booking in bookings][::-1]


class FindsNothing(GenericAdapter):
    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        found = await super().find(booking, send)
        return Absent() if isinstance(found, Confirmed) else found


class PutsOffWhatItMade(GenericAdapter):
    """Looks at what it made, and takes it for not made where it cannot."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        await self.find(booking, send)
        return outcome


class CancelsNothing(GenericAdapter):
    async def cancel(self, booking: Booking, _pms_reservation_id: str, send: Send) -> CancelOutcome:
        found = await self.find(booking, send)
        return found if isinstance(found, Deferred) else Cancelled()


class PutsOffRefusals(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        return Deferred("refused", outcome.problem.detail) if isinstance(outcome, Rejected) else outcome


class OneCodeForAll(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        if isinstance(outcome, Rejected) and outcome.problem.code != "room_unavailable":
            return Rejected(replace(outcome.problem, code="pms_refused"))
        return outcome


class PassesOn(GenericAdapter):
    """What the PMS says when it refuses, word for word."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        said: list[Response] = []

        async def heard(request: Request) -> Response:
            said.append(await send(request))
            return said[-1]

        outcome = await super().create(booking, heard)
        if isinstance(outcome, Rejected):
            return Rejected(replace(outcome.problem, detail=said[-1].content.decode()))
        return outcome


class TakesDoubtForNo(GenericAdapter):
    """A time-out is reported as surely not made."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            outcome = await super().create(booking, send)
        except NoResponse as failure:
            return Deferred(failure.reason, failure.detail)
        return Deferred(outcome.reason, outcome.detail) if isinstance(outcome, InDoubt) else outcome


class TriesAgainBlindly(KeyOfItsOwn):
    """Sends again what was not answered, with no key to go by."""

    capabilities: ClassVar[Capabilities] = _LOOKS_UP

    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            return await super().create(booking, send)
        except NoResponse:
            return await super().create(booking, send)


class TakesFailureForNo(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        return Deferred("pms_failed", "HTTP 500") if isinstance(outcome, InDoubt) else outcome


class RaisesOnStrangeAnswers(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        async def read(request: Request) -> Response:
            response = await send(request)
            if response.status_code != httpx.codes.CREATED:  # what it stumbles on after a yes stays a yes
                _ = from_json(response.content)["id"]
            return response

        return await super().create(booking, read)


class TakesFailureForAbsence(GenericAdapter):
    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        found = await super().find(booking, send)
        return Absent() if isinstance(found, Deferred) and found.reason == "pms_failed" else found


class TakesAnyNotFoundForCancelled(GenericAdapter):
    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        outcome = await super().cancel(booking, pms_reservation_id, send)
        return Cancelled() if isinstance(outcome, Deferred) and "404" in outcome.detail else outcome


class RefusesWhenThrottled(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        if isinstance(outcome, Deferred) and outcome.reason == "pms_throttled":
            return InDoubt(outcome.reason, outcome.detail)
        return outcome


class ForgetsTheWait(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        outcome = await super().create(booking, send)
        return replace(outcome, retry_after_seconds=None) if isinstance(outcome, Deferred) else outcome


class FollowsRedirects(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        async def followed(request: Request) -> Response:
            response = await send(request)
            if response.status_code in (301, 302, 307, 308):
                moved = replace(request, url=urljoin(request.url, response.header("location") or ""))
                return await send(moved)
            return response

        return await super().create(booking, followed)


class RaisesOnBadAddresses(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            return await super().create(booking, send)
        except NotSent as failure:
            raise ValueError(failure.reason) from failure


class TakesItsTime(GenericAdapter):
    taken: ClassVar[bool] = False  # once will do: it is a long time

    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            return await super().create(booking, send)
        except NoResponse as failure:
            if failure.reason == "pms_timed_out" and not TakesItsTime.taken:
                TakesItsTime.taken = True
                await asyncio.sleep(GRACE_SECONDS + 1)
            raise


class SwallowsCancellation(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            return await super().create(booking, send)
        except asyncio.CancelledError:
            return InDoubt("cancelled", "It was cancelled.")


class LeavesTasksBehind(GenericAdapter):
    left: ClassVar[set[asyncio.Task[None]]] = set()

    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            return await super().create(booking, send)
        except asyncio.CancelledError:
            if not self.left:  # once will do: each task is waited for
                self.left.add(asyncio.create_task(asyncio.sleep(60)))
            raise


class ClientOfItsOwn(GenericAdapter):
    """Goes around `send`, and never closes what it opens."""

    clients: ClassVar[list[httpx.AsyncClient]] = []

    async def create(self, booking: Booking, send: Send) -> Outcome:
        async def around(request: Request) -> Response:
            client = httpx.AsyncClient(timeout=1)
            self.clients.append(client)
            try:
                around_it = await client.request(
                    request.method, request.url, headers=[*request.headers], content=request.content
                )
                return Response(around_it.status_code, around_it.headers.raw, around_it.content)
            except httpx.HTTPError as error:
                raise NoResponse("lost", type(error).__name__) from error

        return await super().create(booking, around if self._base_url.startswith("http://127") else send)


class AsksTwice(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        found = await self.find(booking, send)
        return found if isinstance(found, Deferred) else await super().create(booking, send)


class CountsInFloats(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        cents = int(float(booking.total_price or 0) * 100)
        return await super().create(replace(booking, fields={**booking.fields, "totalPrice": cents / 100}), send)


class WritesTheCard(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        if booking.card is not None:
            logging.getLogger("acme").debug("charging %s", booking.card.card_number)
        return await super().create(booking, send)


class ShowsWhatItWasAsked(GenericAdapter):
    """Its `repr`, and what it raises, hold the whole request."""

    _last: bytes = b""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        async def kept(request: Request) -> Response:
            self._last = request.content
            response = await send(request)
            if response.status_code == httpx.codes.CREATED and b"html" in response.content:
                raise RuntimeError(self._last)
            return response

        return await super().create(booking, kept)


class ShowsItsCredential(GenericAdapter):
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._credential})"


class PrintsItsCredential(GenericAdapter):
    async def create(self, booking: Booking, send: Send) -> Outcome:
        print("asking with", self._headers)
        return await super().create(booking, send)


CAUGHT_BY: Final[Sequence[tuple[Any, str, str]]] = (
    (UndescribedOptions, "describes-its-options", "station has no description"),
    (AnyOptions, "describes-its-options", "is not refused"),
    (
        DropsPets,
        "sends-what-it-declares",
        "numberOfPets (27, in a booking that says all): is to be sent as numberOfPets",
    ),
    (SaysThatItKeepsNotes, "sends-what-it-declares", "is said not to be sent, and is sent as notes"),
    (KnowsNoPets, "sends-what-it-declares", "numberOfPets: the table says nothing of it"),
    (ConnectsAtOnce, "opens-nothing-by-itself", "asked the PMS something"),
    (ConfirmsNothing, "makes-reservations", "holds 0 reservations"),
    (OddRecord, "makes-reservations", "not of a record: fax"),
    (SharesState, "makes-many-at-once", "were given"),
    (KeyOfItsOwn, "creates-idempotently", "the same booking again"),
    (ReversesBatches, "creates-batches", "of the batch, number 0"),
    (FindsNothing, "finds-by-reference", "is Absent"),
    (CancelsNothing, "cancels", "holds the reservation as before"),
    (PutsOffRefusals, "refuses-taken-nights", "Deferred"),
    (OneCodeForAll, "refuses-by-its-codes", "not property_not_found"),
    (PassesOn, "tells-nothing-of-the-guest", "maria@example.com"),
    (TakesDoubtForNo, "doubts-what-may-be-made", "Deferred"),
    (TriesAgainBlindly, "doubts-what-may-be-made", "room_unavailable"),
    (RaisesOnStrangeAnswers, "doubts-what-may-be-made", "create raised"),
    (TakesFailureForNo, "doubts-what-it-cannot-know", "HTTP 500"),
    (TakesFailureForAbsence, "looks-up-truly", "HTTP 500, before the PMS had the request: it said Absent"),
    (TakesAnyNotFoundForCancelled, "cancels-truly", "HTTP 404"),
    (RefusesWhenThrottled, "puts-off-what-was-not-done", "HTTP 429"),
    (ForgetsTheWait, "puts-off-what-was-not-done", "retry_after_seconds=None"),
    (FollowsRedirects, "follows-no-redirect", "were followed"),
    (RaisesOnBadAddresses, "survives-wrong-settings", "ValueError"),
    (TakesItsTime, "keeps-its-time", "it took"),
    (SwallowsCancellation, "can-be-cancelled", "it went on"),
    (PutsOffWhatItMade, "stops-when-told", "it is held, and create said Deferred"),
    (LeavesTasksBehind, "can-be-cancelled", "it left behind"),
    (TakesAnyAnswer, "takes-no-answer-of-another", "it was confirmed with another's answer"),
    (ClientOfItsOwn, "leaves-nothing-open", "open after the directory was closed"),
    (ClientOfItsOwn, "minds-the-pace", "0 of them went through"),
    (AsksTwice, "minds-the-pace", "a push made 2 requests"),
    (CountsInFloats, "keeps-amounts-exact", "1.15"),
    (WritesTheCard, "hides-cards", "charging"),
    (ShowsWhatItWasAsked, "hides-cards", "RuntimeError"),
    (ShowsItsCredential, "hides-the-credential", "ShowsItsCredential"),
    (PrintsItsCredential, "hides-the-credential", "asking with"),
)
"""Each, the check that has to find it out, and words of its finding."""
