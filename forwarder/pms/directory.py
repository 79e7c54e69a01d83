"""Every kind of PMS over one transport, as the worker sees it: a `PmsDirectory` of `Pms`s that raise nothing."""

import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import Struct, structs
from pydantic_core import from_json, to_json

from forwarder.observability.tracing import Kind, Span, Tracer, ending
from forwarder.pms import sdk
from forwarder.pms.accounts import Plaintext, is_encrypted
from forwarder.pms.auth import SharedGrantKeeper
from forwarder.pms.http.client import PmsClient, PushPolicy, Reuse, Transport
from forwarder.pms.http.connections import ConnectionPool, PoolLimits, trust_of
from forwarder.pms.http.outcomes import is_yes, read_again, read_words
from forwarder.pms.port import SEARCH_UNPROVEN, SYSTEM_TLS, Pace, Pms, PmsDirectory
from forwarder.pms.registry import Registry, check_options, limits_of, registered
from forwarder.pms.responses import clean
from forwarder.process.loops import FAULTS, Where, contained
from forwarder.reservation.booking import AS_IT_IS
from forwarder.reservation.outcome import AnyOutcome, describe
from forwarder.reservation.parsing import number


def _not_encrypted(what: str) -> sdk.NotSent:
    wanted = "the base URL, and every address among the options, must be https."
    return sdk.NotSent("pms_not_encrypted", f"{what} by plain http to another machine: {wanted}")


async def _refuse(_: sdk.Request) -> sdk.Response:
    raise _not_encrypted("No credential and no reservation is sent")


R = TypeVar("R", bound=sdk.Outcome | sdk.LookupOutcome | sdk.CancelOutcome)


class ConnectedPms(Struct, frozen=True, eq=False):
    """A `Pms`: an adapter, and the client that sends its requests at the account's `pace`. `owner`: who reuses the connections, if
    anybody. `trust`: the TLS context, None for the common one. `bears`: what may be sent in plaintext. `tracer`: records what is
    asked in the booking's trace, with the attributes `about` of the account.

    Creates use the account's kept connections, if it may keep any. Look-ups and cancellations use new ones: nothing in the answer
    "there is none" shows whose it is."""

    adapter: sdk.Adapter
    client: PmsClient
    pace: Pace
    owner: str | None
    trust: ssl.SSLContext | None
    bears: Plaintext
    tracer: Tracer | None
    about: Mapping[str, str]
    held: Callable[[], bool] | None = None

    @property
    def capabilities(self) -> sdk.Capabilities:
        return self.adapter.capabilities

    def while_held(self, held: Callable[[], bool]) -> "ConnectedPms":
        return structs.replace(self, held=held)

    async def create(self, booking: sdk.Booking) -> sdk.Outcome:
        return await self._recorded("create", booking, self._create)

    async def create_many(self, bookings: Sequence[sdk.Booking]) -> Sequence[sdk.Outcome]:
        """Each has a span in its own trace. The requests, which are for all, are in the first's, to which the others are linked."""
        if self.tracer is None:
            return await self._create_many(bookings)
        first = self._span(self.tracer, "create", bookings[0])
        spans = [first, *(self._span(self.tracer, "create", each, (first.trace,)) for each in bookings[1:])]
        with ending(*spans):
            traced = [replace(each, trace=span.trace) for each, span in zip(bookings, spans, strict=True)]
            outcomes = await self._create_many(traced)
            # As many as there are: a wrong number is a bug of the adapter, which the caller reports.
            for span, outcome in zip(spans, outcomes, strict=False):
                _note(span, outcome)
            return outcomes

    async def find(self, booking: sdk.Booking) -> sdk.LookupOutcome:
        return await self._recorded("find", booking, self._find)

    async def cancel(self, booking: sdk.Booking, pms_reservation_id: str) -> sdk.CancelOutcome:
        return await self._recorded("cancel", booking, partial(self._cancel, pms_reservation_id))

    async def _recorded(self, action: str, booking: sdk.Booking, ask: Callable[[sdk.Booking], Awaitable[R]]) -> R:
        if self.tracer is None:
            return await ask(booking)
        span = self._span(self.tracer, action, booking)
        with ending(span):
            outcome = await ask(replace(booking, trace=span.trace))
            _note(span, outcome)
            return outcome

    def _span(self, tracer: Tracer, action: str, booking: sdk.Booking, links: Sequence[str] = ()) -> Span:
        attributes = {**self.about, "forwarder.request_id": booking.reference, "forwarder.action": action}
        return tracer.start(f"push {action}", Kind.INTERNAL, booking.trace, attributes, links=links)

    async def _create(self, booking: sdk.Booking) -> sdk.Outcome:
        if booking.card is not None and self.bears is not Plaintext.EVERYTHING:
            return sdk.outcome_of(_not_encrypted("A card is not sent"))
        reuse, named, sent = Reuse(self.owner, self.trust), False, self._sent(booking)
        send_request, body = self._send(booking, reuse), b""
        response: sdk.Response | None = None  # the last, unless that was a GET's

        async def send(request: sdk.Request) -> sdk.Response:
            nonlocal body, response
            body, response = request.content, None
            got = await send_request(request)
            response = None if request.method == "GET" else got
            return got

        outcome: sdk.Outcome
        try:
            outcome = await self.adapter.create(sent, send)
            named = isinstance(outcome, sdk.Confirmed) and outcome.named
        except (sdk.NotSent, sdk.NoResponse) as failure:
            outcome = sdk.outcome_of(failure)
        except FAULTS as error:
            if response is None or not is_yes(response.status_code):
                raise
            contained(Where.ADAPTER, error, action="create", request_id=booking.reference)
            outcome = sdk.not_understood(response)  # which is never created again
        finally:
            reuse.end(keep=named)
        outcome = read_again(outcome, response, sent.reference, body)
        return await self._checked(outcome, booking, sent, reused=reuse.reused)

    async def _checked(
        self, outcome: sdk.Outcome, booking: sdk.Booking, sent: sdk.Booking, *, reused: bool = False
    ) -> sdk.Outcome:
        """`outcome` by what holds for every kind. `sent`: `booking` as the adapter had it."""
        names_it = reused or self.adapter.capabilities.names_reference
        if isinstance(outcome, sdk.Confirmed) and not outcome.named and names_it:
            detail = "The PMS answered without our reference, which it always names."
            outcome = sdk.InDoubt("pms_reference_missing", detail, None, True, outcome.pms_reservation_id)  # noqa: FBT003
        if isinstance(outcome, sdk.Rejected) and sent is not booking:
            outcome = sdk.Rejected(replace(outcome.problem, request_id=booking.reference))
        return await clean(outcome, sent)

    def _sent(self, booking: sdk.Booking) -> sdk.Booking:
        """With the reference in the form that the PMS keeps."""
        form = self.adapter.capabilities.reference_form
        return booking if form is AS_IT_IS else replace(booking, reference=form.of(booking.reference))

    async def _create_many(self, bookings: Sequence[sdk.Booking]) -> Sequence[sdk.Outcome]:
        if not isinstance(self.adapter, sdk.BatchAdapter):
            return [await self._create(booking) for booking in bookings]
        if self.bears is not Plaintext.EVERYTHING and any(booking.card is not None for booking in bookings):
            return [sdk.outcome_of(_not_encrypted("A card is not sent"))] * len(bookings)
        sent = [self._sent(booking) for booking in bookings]
        try:
            outcomes = await self.adapter.create_many(sent, self._send(bookings[0]))
        except (sdk.NotSent, sdk.NoResponse) as failure:
            outcomes = [sdk.outcome_of(failure)] * len(bookings)
        if len(outcomes) != len(bookings):  # an adapter's bug, for its caller to see
            return outcomes
        ids = Counter(one.pms_reservation_id for one in outcomes if isinstance(one, sdk.Confirmed))
        detail = "The PMS gave several reservations of one request the same id."
        shared = sdk.InDoubt("pms_answer_not_understood", detail, made=True)
        outcomes = [shared if isinstance(o, sdk.Confirmed) and ids[o.pms_reservation_id] > 1 else o for o in outcomes]
        return [
            await self._checked(read_words(outcome, one.reference), booking, one)
            for outcome, booking, one in zip(outcomes, bookings, sent, strict=True)
        ]

    async def _find(self, booking: sdk.Booking) -> sdk.LookupOutcome:
        booking = self._sent(booking)
        try:
            found = await steady(partial(self.adapter.find, booking), self._send(booking))
        except (sdk.NotSent, sdk.NoResponse) as failure:
            found = sdk.harmless(sdk.outcome_of(failure))
        return await clean(found, booking)

    async def _cancel(self, pms_reservation_id: str, booking: sdk.Booking) -> sdk.CancelOutcome:
        try:
            outcome = await self.adapter.cancel(booking, pms_reservation_id, self._send(booking))
        except (sdk.NotSent, sdk.NoResponse) as failure:
            outcome = sdk.harmless(sdk.outcome_of(failure))
        return await clean(outcome, booking)

    def _send(self, about: sdk.Booking, reuse: Reuse | None = None) -> sdk.Send:
        """Without `reuse` each request has a connection of its own."""
        if self.bears is Plaintext.NOTHING:
            return _refuse
        return self.client.push(self.pace, self.held, reuse or Reuse(None, self.trust), about.trace)


def _note(span: Span, outcome: AnyOutcome) -> None:
    """The outcome by its code. A refusal by the PMS is no failure."""
    name, reason, _ = describe(outcome)
    if isinstance(outcome, sdk.Deferred | sdk.InDoubt):
        span.fail(outcome.reason)
    span.note({"forwarder.outcome": name, **({"forwarder.reason": reason} if reason else {})})


# --- look-ups through lists ---

MAX_READINGS: Final = 4


async def steady(look_up: Callable[[sdk.Send], Awaitable[sdk.LookupOutcome]], send: sdk.Send) -> sdk.LookupOutcome:
    """The outcome of `look_up`, which sends its requests with the given `send`. A list that comes in pages is believed only where
    it did not change while it was read. A booking that is cancelled, or moved, while pages are read shifts those after it: ours may
    slip from a page that was not read yet to one that was. So an absence is read again until two readings in turn brought the same
    pages. A list from a cache may be from before the create."""
    before: list[bytes] | None = None
    for _ in range(MAX_READINGS):
        pages: list[tuple[str, bytes, bool]] = []

        async def noted(request: sdk.Request, into: list[tuple[str, bytes, bool]] = pages) -> sdk.Response:
            response = await send(request)
            into.append((request.url, _listed(response.content), _is_cached(response)))
            return response

        found = await look_up(noted)
        if not isinstance(found, sdk.Absent):
            return found
        if any(cached for *_, cached in pages):
            detail = "A cache answered in place of the PMS, by what was there some time ago."
            return sdk.Deferred(SEARCH_UNPROVEN, detail)
        urls = Counter(url for url, *_ in pages)
        shown = [page for url, page, _ in pages if urls[url] > 1]  # one page is as it was at one moment
        if not shown or shown == before:
            return found
        before = shown
    return sdk.Deferred("pms_list_changing", "The PMS's list of reservations changed each time while it was read.")


def _is_cached(response: sdk.Response) -> bool:
    """Whether it comes from a cache, by its `Age` (RFC 9111) or by what caches without one say."""
    ages = (response.header("age") or "").split(",")
    names = ("x-cache", "x-cache-status", "x-proxy-cache", "cf-cache-status")
    said = " ".join(response.header(name) or "" for name in names)
    return any(number(age.strip()) for age in ages) or bool(re.search(r"(?i)\b(tcp_\w*)?(hit|stale|updating)", said))


def _listed(content: bytes) -> bytes:
    """A digest of the lists and numbers of a page, which may be large. Other texts may differ each time: the time of the answer."""
    with suppress(ValueError):
        content = to_json(_parts(from_json(content)))
    return sha256(content).digest()


def _parts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _parts(part) for name, part in value.items() if isinstance(part, dict | list | int)}


# --- the directory ---


@dataclass(frozen=True, slots=True)
class KindDirectory:
    client: PmsClient
    clock: sdk.Clock
    registry: Registry
    grants: SharedGrantKeeper | None
    plaintext: Plaintext
    tracer: Tracer | None

    def limits(self, kind: str, options: Mapping[str, Any]) -> sdk.Limits:
        known = self.registry.kinds.get(kind)
        return sdk.Limits() if known is None else limits_of(known, options)

    def connect(self, connection: sdk.AccountConnection) -> Pms:
        check_options(connection.kind, connection.options, self.registry)
        adapter = self.registry.kinds[connection.kind]
        if self.grants is not None:
            connection = replace(connection, grants=self.grants.under(connection.credential))
        # The second answer to a push's first request would be taken for its next one's.
        owner = connection.account_id if limits_of(adapter, connection.options).requests_per_push == 1 else None
        trust = None if connection.tls == SYSTEM_TLS else trust_of(connection.tls)
        bears = Plaintext.EVERYTHING if is_encrypted(connection.base_url, connection.options) else self.plaintext
        made = adapter(connection, self.clock)
        about = {"forwarder.account_id": connection.account_id, "forwarder.pms.kind": connection.kind}
        return ConnectedPms(made, self.client, connection.pace, owner, trust, bears, self.tracer, about)


@asynccontextmanager
async def open_directory(
    clock: sdk.Clock,
    *,
    policy: PushPolicy | None = None,
    transport: Transport | None = None,
    registry: Registry | None = None,
    grants: SharedGrantKeeper | None = None,
    plaintext: Plaintext = Plaintext.NOTHING,
    tracer: Tracer | None = None,
    forward_traces: bool = True,
) -> AsyncIterator[PmsDirectory]:
    """Its connections are closed in the end. `grants`: where accounts' grants are kept, instead of in their connection. `tracer`:
    records requests to PMSs; they carry the callers' traces if `forward_traces`. `transport`, `registry`: for tests."""
    async with aclosing(transport or ConnectionPool(PoolLimits())) as opened:
        client = PmsClient(opened, clock, policy or PushPolicy(), tracer, forward=forward_traces)
        yield KindDirectory(client, clock, registry or registered(), grants, plaintext, tracer)
