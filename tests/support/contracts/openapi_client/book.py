"""A booking engine of a few lines: books by a client that openapi-python-client generated from schemas/openapi.json.

Run with the generated package `reservations` on the path. Arguments: base URL, token, workspace, integration account. Prints JSON.
"""

import json
import sys
from datetime import date

from reservations import AuthenticatedClient
from reservations.api.reading import get_reservation, get_submission, list_reservations
from reservations.api.submitting import cancel_reservation, submit_booking_engine_reservation, submit_reservation
from reservations.models import (
    Address,
    AddressCountry,
    BookingEngineReservation,
    BookingEngineReservationMorChannel,
    CancellationBody,
    Currency,
    GeneralGuest,
    GeneralReservation,
    Guest,
    ListReservationsStatusItem,
    ProblemBody,
    ReservationEnvelope,
    ReservationPage,
    SubmissionEnvelope,
)

write_url, read_url, token, workspace, account = sys.argv[1:]
writer = AuthenticatedClient(base_url=write_url, token=token, timeout=30, raise_on_unexpected_status=True)
reader = AuthenticatedClient(base_url=read_url, token=token, timeout=30, raise_on_unexpected_status=True)
caller = {"workspace_id": workspace, "integration_account_id": account}

address = Address(
    line1="Calle Mayor 1", line2="", postal_code="28013", city="Madrid", state="Madrid", country=AddressCountry.ES
)
guest = Guest(name="Ana Ruiz", first_name="Ana", last_name="Ruiz", email="ana@example.com", address=address)
stay = {
    "property_id": 1001,
    "arrival_date": date(2031, 6, 1),
    "departure_date": date(2031, 6, 5),
    "number_of_guests": 2,
    "total_price": 480.5,
    "currency": Currency.EUR,
}
engine = BookingEngineReservation(
    guest=guest, mor_channel=BookingEngineReservationMorChannel.SELF, room_id="A-7", **stay
)
general = GeneralReservation(guest=GeneralGuest(name="Ben Ode"), **{**stay, "property_id": 1002})


def submit(key: str) -> ReservationEnvelope:
    made = submit_booking_engine_reservation.sync(
        client=writer, body=engine, idempotency_key=f'"{key}"', prefer="wait=20", **caller
    )
    assert isinstance(made, ReservationEnvelope), made
    return made


first, again = submit("order-1"), submit("order-1")
assert first.data.request_id == again.data.request_id
other = submit_reservation.sync(client=writer, body=general, prefer="wait=20", **caller)
assert isinstance(other, ReservationEnvelope), other
nowhere = GeneralReservation(guest=GeneralGuest(name="Ben Ode"), **{**stay, "property_id": "unknown"})
refused = submit_reservation.sync(client=writer, body=nowhere, prefer="wait=20", **caller)
assert isinstance(refused, ProblemBody), refused

submission = get_submission.sync(first.data.request_id, client=reader, **caller)
assert isinstance(submission, SubmissionEnvelope), submission
reservation = get_reservation.sync(first.data.id, client=reader, **caller)
assert isinstance(reservation, ReservationEnvelope), reservation
assert reservation.data.to_dict() == first.data.to_dict()

cancelled = cancel_reservation.sync(
    first.data.request_id, client=writer, body=CancellationBody(reason="ill"), prefer="wait=20", **caller
)
assert isinstance(cancelled, ReservationEnvelope), cancelled
page = list_reservations.sync(client=reader, limit=50, status=list(ListReservationsStatusItem), **caller)
assert isinstance(page, ReservationPage), page

print(
    json.dumps(
        {
            "requestId": first.data.request_id,
            "attempts": [attempt.outcome.value for attempt in submission.data.attempts],
            "problem": refused.code,
            "statuses": [one.status.value for one in page.data],
            "cancelledAt": cancelled.data.cancelled_at,
        }
    )
)
