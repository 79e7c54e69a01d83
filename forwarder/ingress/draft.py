"""From a valid request to the submission that is published: identified, its card sealed and masked. Touches no I/O."""

from dataclasses import dataclass
from datetime import datetime

from pydantic_core import from_json, to_json

from forwarder.ingress.terms import Terms
from forwarder.reservation.card import SealedCard, masked
from forwarder.reservation.identity import RequestIds
from forwarder.reservation.request import BookingEngineRequest, CardDetails, Operation, ReservationRequest
from forwarder.reservation.submission import Submission, fingerprint
from forwarder.runtime.clock import iso
from forwarder.tenancy.access import Caller
from forwarder.tenancy.port import CardSealer
from forwarder.topics.codec import encode_submission
from forwarder.topics.port import Message


@dataclass(frozen=True, slots=True)
class Draft:
    """A submission before it is on the log. `reservation` is its request as JSON; `keyed`: it may have come before."""

    submission: Submission
    reservation: bytes
    accepted_at: str
    keyed: bool

    @property
    def request_id(self) -> str:
        return self.submission.request_id

    def message(self, accepted_at: str) -> Message:
        return encode_submission(self.submission, accepted_at, self.reservation)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Makes drafts: gives each its identifier and seals its card."""

    ids: RequestIds
    sealer: CardSealer

    def make(
        self, caller: Caller, operation: Operation, request: ReservationRequest, terms: Terms, *, now: datetime
    ) -> Draft:
        account_id, key = caller.account.id, terms.idempotency_key
        card = card_of(request)
        reservation = published_form(request, card)
        submission = Submission(
            request_id=self.ids.issue(account_id, now) if key is None else self.ids.derive(account_id, key),
            workspace_id=caller.workspace_id,
            account_id=account_id,
            operation=operation,
            accepted_at=now,
            reservation=from_json(reservation),
            fingerprint=fingerprint(operation, reservation),
            card=self._sealed(card),
            traceparent=terms.traceparent,
            deadline_seconds=terms.deadline_seconds,
        )
        return Draft(submission, reservation, iso(now), keyed=key is not None)

    def _sealed(self, card: CardDetails | None) -> SealedCard | None:
        if card is None or not any(value for _, value in card):
            return None
        return self.sealer.seal_card(card)


def card_of(request: ReservationRequest) -> CardDetails | None:
    """The card that came with the request. The general operation takes none."""
    return request.card_details if isinstance(request, BookingEngineRequest) else None


def published_form(request: ReservationRequest, card: CardDetails | None) -> bytes:
    """The request as JSON: its fields in the forms in which they came, and of the card the masked number alone."""
    if card is None:
        return request.model_dump_json(by_alias=True, exclude_unset=True).encode()
    rest = request.model_dump_json(by_alias=True, exclude_unset=True, exclude={"card_details"}).encode()
    shown = {} if card.card_number is None else {"cardNumber": masked(card.card_number)}
    return rest[:-1] + b',"cardDetails":' + to_json(shown) + b"}"
