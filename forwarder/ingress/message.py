"""From a valid request to the submission that is published: identified, its card sealed and masked. Touches no I/O."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pydantic_core import to_json

from forwarder.ingress.terms import Terms
from forwarder.process.clock import iso
from forwarder.reservation.card import SealedCard, masked
from forwarder.reservation.identity import RequestIds
from forwarder.reservation.request import BookingEngineRequest, CardDetails, Operation, ReservationRequest
from forwarder.reservation.submission import fingerprint, key_of
from forwarder.tenancy.access import Caller
from forwarder.tenancy.port import Sealer
from forwarder.topics.codec import encode_submission
from forwarder.topics.port import Message


class Draft(NamedTuple):
    """A submission before it is on the log: a `Submission` of which nobody reads the request. `reservation` is that as JSON;
    `key` is its message's; `keyed`: it may have come before."""

    request_id: str
    workspace_id: str
    account_id: str
    operation: Operation
    accepted_at: str
    reservation: bytes
    fingerprint: str
    key: str
    keyed: bool
    card: SealedCard | None = None
    traceparent: str | None = None
    deadline_seconds: int | None = None

    def message(self, accepted_at: str) -> Message:
        return encode_submission(self, accepted_at, self.reservation)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Makes drafts: gives each its identifier and seals its card."""

    ids: RequestIds
    sealer: Sealer

    def make(
        self, caller: Caller, operation: Operation, request: ReservationRequest, terms: Terms, *, now: datetime
    ) -> Draft:
        account_id, key = caller.account.id, terms.idempotency_key
        card = card_of(request)
        reservation = published_form(request, card)
        return Draft(
            request_id=self.ids.issue(account_id, now) if key is None else self.ids.derive(account_id, key),
            workspace_id=caller.workspace_id,
            account_id=account_id,
            operation=operation,
            accepted_at=iso(now),
            reservation=reservation,
            fingerprint=fingerprint(operation, reservation),
            key=key_of(account_id, request.property_id),
            keyed=key is not None,
            card=None if card is None else self._sealed(card),
            traceparent=terms.traceparent,
            deadline_seconds=terms.deadline_seconds,
        )

    def _sealed(self, card: CardDetails) -> SealedCard | None:
        return self.sealer.seal_card(card) if any(value for _, value in card) else None


def card_of(request: ReservationRequest) -> CardDetails | None:
    """The card that came with the request. The general operation takes none."""
    return request.card_details if isinstance(request, BookingEngineRequest) else None


def published_form(request: ReservationRequest, card: CardDetails | None) -> bytes:
    """The request as JSON: its fields in the forms in which they came, and of the card the masked number alone."""
    # What pydantic's own `model_dump_json` decodes to a text.
    written = request.__pydantic_serializer__.to_json
    if card is None:
        return written(request, by_alias=True, exclude_unset=True)
    rest = written(request, by_alias=True, exclude_unset=True, exclude={"card_details"})
    shown = {} if card.card_number is None else {"cardNumber": masked(card.card_number)}
    return rest[:-1] + b',"cardDetails":' + to_json(shown) + b"}"
