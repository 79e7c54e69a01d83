"""PMSs whose requests are spans: one for each thing that is asked of a PMS, below it one for each HTTP request that it takes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from forwarder.observability.tracing.context import TRACEPARENT, read_trace
from forwarder.observability.tracing.tracer import Kind, Span, Tracer, ending
from forwarder.pms.http.client import Held, Request, Reuse, Transport, destination_of, with_trace, without_trace
from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.response import Response
from forwarder.pms.port import Capabilities, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    AnyOutcome,
    CancelOutcome,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    describe,
)

_FAILED: Final = 400
_TRACEPARENT: Final = TRACEPARENT.encode()

R = TypeVar("R", bound=Outcome | LookupOutcome | CancelOutcome)


class TracedPms:
    """Requests to `pms` belong to the trace of their booking. `about`: attributes of its account."""

    def __init__(self, pms: Pms, tracer: Tracer, about: Mapping[str, str]) -> None:
        self._pms = pms
        self._tracer = tracer
        self._about = about

    @property
    def capabilities(self) -> Capabilities:
        return self._pms.capabilities

    def while_held(self, held: Callable[[], bool]) -> "TracedPms":
        return TracedPms(self._pms.while_held(held), self._tracer, self._about)

    async def create(self, booking: Booking) -> Outcome:
        return await self._ask("create", booking, self._pms.create)

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        """Each has a span in its own trace. The requests, which are for all, are in the first's, to which the others are linked."""
        first = self._start("create", bookings[0])
        spans = [first, *(self._start("create", each, first) for each in bookings[1:])]
        with ending(*spans):
            traced = [replace(each, trace=span.trace) for each, span in zip(bookings, spans, strict=True)]
            outcomes = await self._pms.create_many(traced)
            # As many as there are: a wrong number is a bug of the adapter, which the caller reports.
            for span, outcome in zip(spans, outcomes, strict=False):
                _note(span, outcome)
            return outcomes

    async def find(self, booking: Booking) -> LookupOutcome:
        return await self._ask("find", booking, self._pms.find)

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        return await self._ask("cancel", booking, lambda traced: self._pms.cancel(traced, pms_reservation_id))

    async def _ask(self, action: str, booking: Booking, ask: Callable[[Booking], Awaitable[R]]) -> R:
        span = self._start(action, booking)
        with ending(span):
            outcome = await ask(replace(booking, trace=span.trace))
            _note(span, outcome)
            return outcome

    def _start(self, action: str, booking: Booking, together_with: Span | None = None) -> Span:
        attributes = {**self._about, "forwarder.request_id": booking.reference, "forwarder.action": action}
        links = () if together_with is None else (together_with.trace,)
        return self._tracer.start(f"push {action}", Kind.INTERNAL, booking.trace, attributes, links=links)


def _note(span: Span, outcome: AnyOutcome) -> None:
    """The outcome by its code. A refusal by the PMS is no failure."""
    name, reason, _ = describe(outcome)
    if isinstance(outcome, Deferred | InDoubt):
        span.fail(outcome.reason)
    span.note({"forwarder.outcome": name, **({"forwarder.reason": reason} if reason else {})})


class TracedTransport:
    """Records each request in the trace of its `traceparent`. Sends that header to the PMS only with `forward`."""

    def __init__(self, transport: Transport, tracer: Tracer, *, forward: bool) -> None:
        self._transport = transport
        self._tracer = tracer
        self._forward = forward

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        origin = destination_of(request.url).origin
        # No path: it may hold a credential, or name a guest.
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "server.address": origin.host,
            "server.port": origin.port,
            "url.scheme": "https" if origin.tls else "http",
        }
        span = self._tracer.start(request.method, Kind.CLIENT, _trace_of(request), attributes)
        request = with_trace(request, span.trace) if self._forward else without_trace(request)
        try:
            response = await self._transport.exchange(request, deadline, held, reuse)
        except (NotSent, NoResponse) as failure:
            span.fail(failure.reason)
            raise
        except BaseException as error:
            span.fail(type(error).__name__)
            raise
        else:
            span.note({"http.response.status_code": response.status_code})
            if response.status_code >= _FAILED:
                span.fail(str(response.status_code))
            return response
        finally:
            span.end()

    async def aclose(self) -> None:
        await self._transport.aclose()


def _trace_of(request: Request) -> str | None:
    parent = next((value for name, value in request.headers if name == _TRACEPARENT), None)
    return None if parent is None else read_trace(parent.decode("latin-1"))
